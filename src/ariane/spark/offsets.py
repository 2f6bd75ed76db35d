"""How far a stream has read: the offsets that Spark keeps in its checkpoint.

Spark compares offsets as text, so the same offsets always give the same text: topics, brokers and
queues are sorted. The version is there for readers of checkpoints that were written by others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ariane.errors import ConfigError

VERSION: Final = 1
OFFSET_MAX: Final = (1 << 63) - 1

Nested = dict[str, dict[str, dict[str, int]]]  # topic -> broker -> queue -> offset


class Queue(NamedTuple):
    """One queue of one topic on one broker."""

    topic: str
    broker: str
    queue_id: int

    def __str__(self) -> str:
        return f"topic {self.topic}, broker {self.broker}, queue {self.queue_id}"


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The offset up to which each queue was read, and where queues began that are new in it."""

    queues: Mapping[Queue, int]
    # A new queue is not in the offset before. Where it began is kept beside where it ends, so that
    # a batch that is replayed reads the same range though retention may have passed meanwhile.
    added: Mapping[Queue, int] = field(default_factory=dict)
    # When the youngest message of each broker was stored that was there then. Whatever lies below
    # these offsets is older, or else it is not what was read.
    stored_ms: Mapping[str, int] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        """What Spark keeps."""
        value: dict[str, Any] = {"version": VERSION, "queues": nested(self.queues)}
        if self.added:
            value["added"] = nested(self.added)
        if self.stored_ms:
            value["storedMs"] = dict(sorted(self.stored_ms.items()))
        return value


def stream_offset_of(value: object) -> StreamOffset:
    """Read what `json` gave; raises ConfigError for what no version of ours has written."""
    if not isinstance(value, dict) or "version" not in value:
        raise ConfigError(
            f"the checkpoint's offset {value!r} was not written by this source; "
            "give the query a checkpoint location of its own"
        )
    if value["version"] != VERSION:
        raise ConfigError(
            f"the checkpoint's offset has version {value['version']!r} and this Ariane reads "
            f"version {VERSION}; continue the query with the Ariane that wrote it"
        )
    return StreamOffset(
        flat(value.get("queues"), "the checkpoint's offset"),
        flat(value.get("added", {}), "the checkpoint's offset"),
        value.get("storedMs", {}),
    )


def nested(offsets: Mapping[Queue, int]) -> Nested:
    """Offsets by topic, broker and queue, all sorted."""
    tree: Nested = {}
    for queue in sorted(offsets):
        brokers = tree.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker, {})[str(queue.queue_id)] = offsets[queue]
    return tree


def flat(value: object, what: str, *, least: int = 0, most: int = OFFSET_MAX) -> dict[Queue, int]:
    """The reverse of `nested`; `what` names the value in errors, numbers are `least` to `most`."""

    def refuse(found: object) -> ConfigError:
        return ConfigError(
            f'{what} must look like {{"topic":{{"broker-a":{{"0":23}}}}}} with whole numbers from '
            f"{least} to {most}, and holds {found!r}"
        )

    offsets: dict[Queue, int] = {}
    for topic, brokers in _members(value, refuse):
        for broker, queues in _members(brokers, refuse):
            for number, offset in _members(queues, refuse):
                if not (number.isascii() and number.isdecimal()):
                    raise refuse(number)
                if not isinstance(offset, int) or isinstance(offset, bool):
                    raise refuse(offset)
                if not least <= offset <= most:
                    raise refuse(offset)
                offsets[Queue(topic, broker, int(number))] = offset
    return offsets


def _members(value: object, refuse: Callable[[object], ConfigError]) -> list[tuple[str, object]]:
    if not isinstance(value, dict):
        raise refuse(value)
    return list(value.items())
