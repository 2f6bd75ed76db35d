"""The columns of the source, in their order; and a user's schema as a choice among them.

Spark prunes no columns for Python sources, so the schema that a user gives is the projection: what
it does not name is never decoded.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ariane.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

COLUMNS: Final[Mapping[str, str]] = {  # name -> Spark's name of its type
    "topic": "string",
    "brokerName": "string",
    "queueId": "int",
    "queueOffset": "bigint",
    "msgId": "string",
    "keys": "string",
    "tags": "string",
    "body": "binary",
    "properties": "map<string,string>",
    "bornTimestamp": "timestamp",
    "storeTimestamp": "timestamp",
    "bornHost": "string",
    "reconsumeTimes": "int",
    "sysFlag": "int",
    "physicalOffset": "bigint",
}
PROPERTIES: Final = "properties"
_SURE_NAMES: Final = {"timestamp": "timestamp_ltz"}  # sessions may mean another by `timestamp`


def ddl(*, with_properties: bool = True) -> str:
    """The schema when the user gives none."""
    return ", ".join(
        f"{name} {_SURE_NAMES.get(kind, kind)}"
        for name, kind in COLUMNS.items()
        if with_properties or name != PROPERTIES
    )


def projection(schema: StructType) -> tuple[str, ...]:
    """The columns that a schema asks for, in its order; raises ConfigError for what is not ours."""
    return columns_of([(field.name, field.dataType.simpleString()) for field in schema.fields])


def columns_of(fields: list[tuple[str, str]]) -> tuple[str, ...]:
    """The same, of names and types."""
    for name, kind in fields:
        if name not in COLUMNS:
            raise ConfigError(f"the source has no column {name!r}; {_hint(name)}")
        if kind != COLUMNS[name]:
            raise ConfigError(
                f"column {name} is {COLUMNS[name]}, and the schema says {kind}; read it as "
                f"{COLUMNS[name]} and cast it, as in df.selectExpr('cast({name} as {kind})')"
            )
    names = tuple(name for name, _ in fields)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"the schema names column {twice} more than once")
    return names


def _hint(name: str) -> str:
    lowered = {known.lower(): known for known in COLUMNS}
    near = difflib.get_close_matches(name.lower(), lowered, n=1)
    if near:
        return f"did you mean {lowered[near[0]]}?"
    return f"its columns are {', '.join(COLUMNS)}"
