"""What runs once per message, compiled: records, queues, index and the hot lane."""
