"""Which columns the sink takes, and of which types; others are refused before a query runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ariane.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

# Column -> the types it may have, as Spark writes them.
COLUMNS: Final = {
    "body": ("string", "binary"),
    "topic": ("string",),
    "keys": ("string",),
    "tags": ("string",),
    "properties": ("map<string,string>",),
    "queueId": ("int", "smallint", "tinyint"),
    "shardingKey": ("string",),
    "deliverAt": ("timestamp",),
}


def check_schema(schema: StructType, topic: str | None) -> dict[str, str]:
    """The user's column of each name of ours; raises ConfigError with what to do about it."""
    ours = {name.lower(): name for name in COLUMNS}
    found: dict[str, str] = {}
    for column in schema.fields:
        name = ours.get(column.name.lower())
        if name is None:
            raise ConfigError(
                f"the sink has no column {column.name!r}; it takes {', '.join(COLUMNS)}: select"
                " those, and put other values into body or properties"
            )
        if name in found:
            raise ConfigError(f"the column {name} is there twice")
        if (kind := _type_of(column.dataType)) not in COLUMNS[name]:
            raise ConfigError(
                f"the column {column.name} must be {' or '.join(COLUMNS[name])}, not {kind};"
                " cast it"
            )
        found[name] = column.name
    if "body" not in found:
        raise ConfigError("the sink needs a column body, of type string or binary")
    if topic is None and "topic" not in found:
        raise ConfigError("which topic? give the option topic, or a column topic")
    return found


def _type_of(kind: DataType) -> str:
    """A type in Spark's words; collations and nullability of what is inside make no difference."""
    from pyspark.sql.types import MapType, StringType  # noqa: PLC0415 - Spark is not always there

    if isinstance(kind, StringType):
        return "string"
    if isinstance(kind, MapType):
        return f"map<{_type_of(kind.keyType)},{_type_of(kind.valueType)}>"
    return kind.simpleString()
