"""Found by Spark for its name: the format `rocketmq`, without a call to register it."""

from ariane.spark.source import MessageSource


class DefaultSource(MessageSource):
    """The format `rocketmq`."""
