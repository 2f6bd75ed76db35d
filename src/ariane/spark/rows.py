"""From RecordBatches to chunks of messages: one compiled call for each batch.

A chunk holds consecutive rows of a task for one queue. Rows with a queueId go to that queue, rows
with a shardingKey to the queue that Java's clients choose for it, and all others wherever the next
chunk goes: to the topic's queues in turn. Rows that ask for a time travel in chunks of their own.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ariane.client.messages import BODY_BYTES_MAX, OWN_PROPERTIES
from ariane.errors import InvalidMessage
from ariane.protocol.bodies import MessageQueue
from ariane.protocol.properties import KEYS, SHARDING_KEY, TAGS
from ariane.spark._rows import Names, Numbers, Pairs, RowEncoder, RowFault, Texts

CHUNK_BYTES: Final = 1 << 20
HELD_BYTES_MAX: Final = 64 << 20  # in chunks that are not full, of all queues together
LATE_ROWS_MAX: Final = 1000  # of a chunk with rows that ask for a time
BODY_SPARE_BYTES: Final = 64 << 10  # a body and its properties go into one chunk

Queues = Sequence[MessageQueue]


@dataclass(frozen=True, slots=True)
class NewChunk:
    """Rows for one queue, as a batch."""

    queue: MessageQueue
    body: bytes
    row_count: int
    is_late: bool  # the rows ask for a time


class Chunker:
    """The rows of one task, in order."""

    def __init__(
        self,
        columns: Mapping[str, str],
        topic: str | None,
        queues_of: Callable[[str], Queues],
        *,
        identity: str,
        partition: int,
    ) -> None:
        self._columns = columns
        self._topic = topic
        self._queues_of = queues_of
        self._partition = partition
        self._bases: dict[str, int] = {}  # topic -> its first pair of lanes
        self._pairs: list[tuple[Queues, int]] = []  # by pair: the topic's queues, and which of them
        self._turns: dict[int, int] = {}  # by pair of rows that may go anywhere
        self._encoder = RowEncoder(
            key_head_of(identity),
            Names(_left_out(columns)),
            chunk_bytes=CHUNK_BYTES,
            held_bytes_max=HELD_BYTES_MAX,
            body_bytes_max=BODY_BYTES_MAX - BODY_SPARE_BYTES,
            late_rows_max=LATE_ROWS_MAX,
        )

    @property
    def row_count(self) -> int:
        """How many rows have been taken."""
        return self._encoder.row_count

    def add(self, batch: Any) -> Iterator[NewChunk]:
        """Take the rows of a RecordBatch; the chunks that it filled."""
        given = {name: batch.column(column) for name, column in self._columns.items()}
        topics, names = None, [self._topic or ""]
        if self._topic is None:
            coded = given["topic"].dictionary_encode()
            topics, names = _numbers(coded.indices), coded.dictionary.to_pylist()
        bodies = _texts(given["body"])
        assert bodies is not None
        try:
            self._encoder.encode(
                batch.num_rows,
                bodies,
                table=array("i", [n for name in names for n in self._lanes_of(name)]),
                topics=topics,
                keys=_texts(given.get("keys")),
                tags=_texts(given.get("tags")),
                sharding_keys=_texts(given.get("shardingKey")),
                properties=_pairs(given.get("properties")),
                queue_ids=_queue_ids(given.get("queueId")),
                deliver_us=_times(given.get("deliverAt")),
            )
        except RowFault as fault:
            row, reason = fault.args
            raise InvalidMessage(f"row {row} of partition {self._partition}: {reason}") from None
        return self._taken()

    def finish(self) -> Iterator[NewChunk]:
        """The chunks that are not full."""
        self._encoder.finish()
        return self._taken()

    def _taken(self) -> Iterator[NewChunk]:
        finished = self._encoder.finished
        while finished:
            lane, body, row_count = finished.pop(0)
            yield NewChunk(self._queue_of(lane // 2), body, row_count, is_late=bool(lane % 2))

    def _queue_of(self, pair: int) -> MessageQueue:
        queues, number = self._pairs[pair]
        if number == len(queues):
            # Tasks begin with different queues, so that few chunks are spread as well as many.
            turn = self._turns.get(pair, self._partition)
            self._turns[pair] = turn + 1
            number = turn % len(queues)
        return queues[number]

    def _lanes_of(self, topic: str) -> tuple[int, int]:
        """The number of a topic's first pair of lanes, and how many queues it has."""
        base = self._bases.get(topic)
        if base is None:
            queues = self._queues_of(topic)
            base = self._bases[topic] = len(self._pairs)
            self._pairs += [(queues, number) for number in range(len(queues) + 1)]
        return base, len(self._pairs[base][0])


def _left_out(columns: Mapping[str, str]) -> frozenset[str]:
    """Properties that a row may not bring along: RocketMQ's own, and what a column says.

    Rows that were read from a topic have them all in their map; they tell of that message.
    """
    by_column = {"keys": KEYS, "tags": TAGS, "shardingKey": SHARDING_KEY}
    may_stay = {name for column, name in by_column.items() if column not in columns}
    return OWN_PROPERTIES - may_stay


def key_head_of(identity: str) -> bytes:
    """What the unique keys of a task begin with: the same whenever it is run again."""
    return hashlib.blake2b(identity.encode(), digest_size=10).hexdigest().upper().encode()


def _texts(column: Any) -> Texts | None:
    if column is None:
        return None
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and wanted on executors only

    if pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type):
        column = column.cast(pa.binary())
    validity, offsets, data = column.buffers()
    return Texts(validity, offsets, data, column.offset, len(column))


def _numbers(column: Any) -> Numbers:
    validity, data = column.buffers()
    return Numbers(validity, data, column.offset, len(column), column.type.bit_width // 8)


def _queue_ids(column: Any) -> Numbers | None:
    if column is None:
        return None
    import pyarrow as pa  # noqa: PLC0415

    return _numbers(column.cast(pa.int32()))


def _times(column: Any) -> Numbers | None:
    if column is None:
        return None
    import pyarrow as pa  # noqa: PLC0415

    return _numbers(column.cast(pa.timestamp("us", tz=column.type.tz)))


def _pairs(column: Any) -> Pairs | None:
    if column is None:
        return None
    validity, offsets, *_ = column.buffers()
    names, values = _texts(column.keys), _texts(column.items)
    assert names is not None and values is not None
    return Pairs(validity, offsets, names, values, column.offset, len(column))
