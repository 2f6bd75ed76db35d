"""The notes in the revive topic: how they are written, and what was written by whom is read back.

Checkpoints (tag `ck`) and acknowledgements (`ack`, `bAck`) are Apache's, so either broker can go on
from the other's notes. Three things are ours, and skipped by Apache: a pop's checkpoint says where
its group goes on in the queue; one made by changing an invisible time names the one it takes its
message from, so that both change in one note; and tag `order` keeps the state of a queue popped in
order.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import field

from ariane.broker.pop.checkpoints import Key
from ariane.broker.pop.order import OrderInfo, Place
from ariane.errors import ProtocolError
from ariane.kernel.pop import Checkpoint
from ariane.protocol import fastjson
from ariane.protocol.message import StoredMessage

LOGGER: Final = logging.getLogger("ariane.broker")

CHECKPOINT_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"
ORDER_TAG: Final = "order"
EARLIER_MS: Final = 1_000  # Apache has checkpoints come so much before they are due


class Note(NamedTuple):
    """What goes into the journal: a message's body and properties."""

    body: bytes
    properties: bytes


class CheckpointFound(NamedTuple):
    """A checkpoint read back."""

    checkpoint: Checkpoint
    next_offset: int | None  # where the group goes on after the pop
    replaced: Key | None  # whose message it has, after a change of the invisible time


class AcksFound(NamedTuple):
    """Acknowledgements read back."""

    key: Key
    offsets: list[int]
    due_ms: int


class OrderFound(NamedTuple):
    """The state of a queue popped in order, and its group's consume offset."""

    place: Place
    consume_offset: int
    info: OrderInfo


Found = CheckpointFound | AcksFound | OrderFound


class CheckpointBody(msgspec.Struct, kw_only=True):
    """A checkpoint's note."""

    settled: int = field(name="bm", default=0)
    broker_name: str | None = field(name="bn", default=None)
    group: str = field(name="c")
    gaps: list[int] | None = field(name="d", default=None)
    invisible_ms: int = field(name="it")
    count: int = field(name="n", default=0)
    popped_ms: int = field(name="pt")
    queue_id: int = field(name="q")
    attempts: str | int | None = field(name="rp", default=None)
    first: int = field(name="so")
    topic: str = field(name="t")
    next_offset: int | None = field(name="xn", default=None)
    replaced_first: int | None = field(name="xso", default=None)
    replaced_popped_ms: int | None = field(name="xpt", default=None)


class AckBody(msgspec.Struct, kw_only=True):
    """A note of one acknowledgement, or of several."""

    queue_offset: int = field(name="ao", default=-1)
    offsets: list[int] | None = field(name="aol", default=None)
    group: str = field(name="c")
    popped_ms: int = field(name="pt")
    queue_id: int = field(name="q")
    first: int = field(name="so")
    topic: str = field(name="t")


class OrderBody(msgspec.Struct, kw_only=True):
    """A note of a queue popped in order."""

    group: str = field(name="c")
    consume_offset: int = field(name="co")
    info: OrderInfo = field(name="info")
    queue_id: int = field(name="q")
    topic: str = field(name="t")


def checkpoint_note(
    checkpoint: Checkpoint,
    broker_name: str,
    *,
    next_offset: int | None = None,
    replaced: Key | None = None,
) -> Note:
    """The note of a checkpoint as it stands."""
    gaps = ",".join(map(str, checkpoint.gaps))
    attempts = f'"rp":"{checkpoint.attempts}",' if checkpoint.attempts else ""
    ours = f',"xn":{next_offset}' if next_offset is not None else ""
    if replaced is not None:
        ours += f',"xpt":{replaced.popped_ms},"xso":{replaced.first}'
    body = (
        f'{{"bm":{_signed32(checkpoint.settled)},"bn":{quoted(broker_name)},'
        f'"c":"{checkpoint.group}","d":[{gaps}],"it":{checkpoint.invisible_ms},'
        f'"n":{checkpoint.count},"pt":{checkpoint.popped_ms},"q":{checkpoint.queue_id},"ro":0,'
        f'{attempts}"so":{checkpoint.first},"t":"{checkpoint.topic}"{ours}}}'
    )
    return Note(body.encode(), properties_of(CHECKPOINT_TAG, checkpoint.due_ms - EARLIER_MS))


def ack_note(key: Key, offsets: Sequence[int], due_ms: int, broker_name: str) -> Note:
    """The note that messages of a checkpoint are acknowledged."""
    rest = (
        f'"bn":{quoted(broker_name)},"c":"{key.group}","pt":{key.popped_ms},"q":{key.queue_id},'
        f'"so":{key.first},"t":"{key.topic}"}}'
    )
    if len(offsets) == 1:
        return Note(f'{{"ao":{offsets[0]},{rest}'.encode(), properties_of(ACK_TAG, due_ms))
    listed = ",".join(map(str, offsets))
    return Note(f'{{"ao":-1,"aol":[{listed}],{rest}'.encode(), properties_of(BATCH_ACK_TAG, due_ms))


def order_note(place: Place, consume_offset: int, info: OrderInfo) -> Note:
    """The note of what is out of a queue popped in order."""
    body = OrderBody(
        topic=place.topic,
        group=place.group,
        queue_id=place.queue_id,
        consume_offset=consume_offset,
        info=info,
    )
    return Note(msgspec.json.encode(body), properties_of(ORDER_TAG, info.blocked_until_ms()))


def read_note(message: StoredMessage) -> Found | None:
    """What a record of the revive topic says; None for what nobody understands."""
    tag = message.tags
    try:
        if tag == CHECKPOINT_TAG:
            return _checkpoint_of(message)
        if tag in (ACK_TAG, BATCH_ACK_TAG):
            return _acks_of(message)
        if tag == ORDER_TAG:
            order = fastjson.decode(message.body, OrderBody)
            place = Place(order.topic, order.group, order.queue_id)
            return OrderFound(place, order.consume_offset, order.info)
    except (ProtocolError, ValueError, OverflowError) as error:
        LOGGER.warning(
            "revive note skipped queue=%d queue_offset=%d reason=%s",
            message.queue_id,
            message.queue_offset,
            error,
        )
    return None


def quoted(text: str) -> str:
    """Text as JSON."""
    return msgspec.json.encode(text).decode()


def properties_of(tag: str, deliver_ms: int) -> bytes:
    """A note's properties; Apache goes by the deliver time to tell how far it has read."""
    return b"TAGS\x01%b\x02TIMER_DELIVER_MS\x01%d\x02" % (tag.encode(), max(deliver_ms, 0))


def _checkpoint_of(message: StoredMessage) -> CheckpointFound:
    body = fastjson.decode(message.body, CheckpointBody)
    gaps = body.gaps or list(range(body.count))
    if len(set(gaps)) != len(gaps) or min(gaps, default=0) < 0:
        raise ValueError(f"a checkpoint with messages at {gaps}")
    key = Key(body.topic, body.group, body.queue_id, body.first, body.popped_ms)
    checkpoint = Checkpoint(
        key,
        body.invisible_ms,
        gaps,
        settled=body.settled & ((1 << len(gaps)) - 1),
        attempts=_attempts(body.attempts),
        revive_queue_id=message.queue_id,
        journal_offset=message.queue_offset,
        log_offset=message.log_offset,
    )
    replaced = None
    if body.replaced_first is not None and body.replaced_popped_ms is not None:
        replaced = key._replace(first=body.replaced_first, popped_ms=body.replaced_popped_ms)
    return CheckpointFound(checkpoint, body.next_offset, replaced)


def _acks_of(message: StoredMessage) -> AcksFound:
    body = fastjson.decode(message.body, AckBody)
    offsets = [body.queue_offset] if body.offsets is None else body.offsets
    key = Key(body.topic, body.group, body.queue_id, body.first, body.popped_ms)
    due = message.properties.get("TIMER_DELIVER_MS") or message.properties.get("TIMER_OUT_MS") or ""
    due_ms = int(due) if due.isascii() and due.isdigit() else message.stored_at_ms
    return AcksFound(key, offsets, due_ms)


def _attempts(text: str | int | None) -> int:
    try:
        return max(0, int(text or 0))
    except ValueError:
        return 0


def _signed32(bits: int) -> int:
    """Java holds the bits in an int; a pop has 32 messages at most."""
    return bits - (1 << 32) if 1 << 31 <= bits < 1 << 32 else bits
