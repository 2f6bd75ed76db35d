"""Messages on disk, in RocketMQ's own files; no event loop, no sockets."""
