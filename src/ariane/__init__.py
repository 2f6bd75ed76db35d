"""RocketMQ, whole, in Python."""
