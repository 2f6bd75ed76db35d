"""Found by Spark for its name: the format `ariane`, without a call to register it."""

from ariane.spark.source import MessageSource


class DefaultSource(MessageSource):
    """The format `ariane`."""

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "ariane"
