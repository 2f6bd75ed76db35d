"""The kernel's columns as Arrow record batches, with the schema that Spark expects to the letter.

Spark compares schemas for equality: no large types, no views, timestamps in microseconds of UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any, Final

import pyarrow as pa

from ariane.broker.filters import of_expression
from ariane.errors import BadFilter, ConfigError
from ariane.kernel.reading import Tags
from ariane.protocol.compression import inflate_body
from ariane.protocol.message import BODY_BYTES_MAX
from ariane.spark._columns import Gatherer
from ariane.spark.bytes.contract import SQL92, TAG, ReadFilter
from ariane.spark.schema import COLUMNS
from ariane.store.filters import Filter

BATCH_BYTES_MAX: Final = 32 << 20  # of records in one batch; one record may lie beyond it

_STAMP: Final = pa.timestamp("us", tz="UTC")
_TEXT_MAP: Final = pa.map_(pa.string(), pa.string())
_TYPES: Final[Mapping[str, pa.DataType]] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": _STAMP,
    "map<string,string>": _TEXT_MAP,
}
_NUMBERS: Final = {name: number for number, name in enumerate(COLUMNS)}
_SOMETIMES: Final = ("keys", "tags")


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The schema of batches with these columns; raises ConfigError for one that does not exist."""
    unknown = [name for name in columns if name not in COLUMNS]
    if unknown:
        raise ConfigError(f"no column {unknown[0]!r}; there are {', '.join(COLUMNS)}")
    return pa.schema([pa.field(name, _TYPES[COLUMNS[name]]) for name in columns])


class Batches:
    """Turns records of one broker's queues into batches; what it has not yielded it holds."""

    def __init__(
        self,
        columns: Sequence[str],
        *,
        broker: str,
        rows_per_batch: int,
        message_filter: ReadFilter | None = None,
        check_crc: bool = False,
        allocate: Callable[[int], Any] = pa.allocate_buffer,
    ) -> None:
        self.schema = arrow_schema(columns)
        self.tags, self.tag_codes, expression = _filters_of(message_filter)
        self.gatherer = Gatherer(
            [_NUMBERS[name] for name in columns],
            broker=broker.encode(),
            rows_max=rows_per_batch,
            bytes_max=BATCH_BYTES_MAX,
            inflate=_inflated,
            host_text=_host_text,
            tags=self.tags,
            tag_codes=None if self.tag_codes is None else Tags(self.tag_codes),
            filter=expression,
            check_crc=check_crc,
        )
        self._allocate = allocate

    def batch(self) -> pa.RecordBatch:
        """What has been gathered; then another batch begins."""
        count = self.gatherer.row_count
        made = self.gatherer.columns(self._allocate)
        arrays = [
            _array(field.name, field.type, buffers, count)
            for field, buffers in zip(self.schema, made, strict=True)
        ]
        if not arrays:  # a batch without columns still has its rows
            return pa.RecordBatch.from_struct_array(
                pa.StructArray.from_buffers(pa.struct([]), count, [None])
            )
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _array(name: str, kind: pa.DataType, made: Any, count: int) -> pa.Array:
    if name in _SOMETIMES:
        bitmap, null_count, text = made
        return _texts(kind, text, count, bitmap, null_count)
    if kind == _TEXT_MAP:
        offsets, pair_count, names, values = made
        pairs = pa.StructArray.from_arrays(
            [_texts(pa.string(), names, pair_count), _texts(pa.string(), values, pair_count)],
            fields=[kind.key_field, kind.item_field],
        )
        bounds = pa.py_buffer(offsets)
        return pa.MapArray.from_buffers(kind, count, [None, bounds], 0, 0, [pairs])
    if isinstance(made, tuple):
        return _texts(kind, made, count)
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(made)], 0)


def _texts(
    kind: pa.DataType, made: tuple[Any, Any, int], count: int, bitmap: Any = None, nulls: int = 0
) -> pa.Array:
    offsets, data, byte_count = made
    valid = None if bitmap is None else pa.py_buffer(bitmap)
    bounds, values = pa.py_buffer(offsets), pa.py_buffer(data).slice(0, byte_count)
    return pa.Array.from_buffers(kind, count, [valid, bounds, values], nulls)


def _filters_of(
    wanted: ReadFilter | None,
) -> tuple[frozenset[bytes] | None, frozenset[int] | None, Filter | None]:
    """Tags to the letter, their codes, and an expression: whichever the filter has."""
    if wanted is None:
        return None, None, None
    if wanted.kind not in (TAG, SQL92):
        raise BadFilter(f"expressions of type {wanted.kind!r}; there are {TAG} and {SQL92}")
    found = of_expression(wanted.expression, wanted.kind)
    if found.tag_codes is None:
        return None, None, found.expression
    tags = frozenset(
        part.strip().encode() for part in wanted.expression.split("||") if part.strip()
    )
    return tags, found.tag_codes, None


def _inflated(body: bytes, system_flag: int) -> bytes:
    return inflate_body(body, system_flag, size_max=BODY_BYTES_MAX)


def _host_text(host: bytes) -> str:
    port = int.from_bytes(host[-4:], "big", signed=True)
    return f"[{ip_address(host[:-4])}]:{port}"
