"""How far each group has consumed each queue: `config/consumerOffset.json`.

The offsets of one "topic@group" are one plain dict, queue id -> consume offset, that the hot lane
writes to without calling anybody. So nothing marks this table changed: each save compares it with
what was saved the last time, and has a copy written when they differ.

A reset asked for by an administrator waits here for the next pull of that queue, which is answered
with "offset moved" once; until then commits are ignored, for they tell of the old place.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ariane.broker import pretty
from ariane.broker.persistence import SavedFile, Saver, load
from ariane.broker.tables import next_version
from ariane.clock import Clock
from ariane.disk import Disk
from ariane.protocol.bodies import ConsumerOffsets, DataVersion

LOGGER: Final = logging.getLogger("ariane.broker")

NAMED_MAX: Final = 10  # in one line of the log
OFFSETS_PATH: Final = "config/consumerOffset.json"

Offsets = dict[int, int]  # queue id -> consume offset


class OffsetTable:
    """(topic, group, queue) -> consume offset."""

    def __init__(self, clock: Clock, saver: Saver) -> None:
        self.version = DataVersion(timestamp=clock.wall_ms())
        self.on_reset: list[Callable[[str, str], None]] = []  # told (topic, group)
        self.before_save: list[Callable[[], None]] = []  # each may bring the table up to date
        self.file = SavedFile(OFFSETS_PATH, self._encode, saver)
        self._clock = clock
        self._offsets: dict[str, Offsets] = {}
        self._pulled: dict[str, Offsets] = {}  # where pulls stand: ahead of commits, not saved
        self._resets: dict[str, Offsets] = {}  # not saved
        self._saved: dict[str, Offsets] = {}  # the offsets, as last handed to the file

    def offsets_of(self, topic: str, group: str) -> Offsets:
        """The live offsets of a group on a topic; writing to the dict commits."""
        return self._offsets.setdefault(_key(topic, group), {})

    def progress(self, topic: str, group: str) -> Mapping[int, int]:
        """What the group has committed on a topic, to look at only."""
        return self._offsets.get(_key(topic, group), _NONE)

    def pulled_of(self, topic: str, group: str) -> Offsets:
        """Where the group's pulls stand, live; only shown, never saved."""
        return self._pulled.setdefault(_key(topic, group), {})

    def get(self, topic: str, group: str, queue_id: int) -> int | None:
        """Where the group goes on reading: a pending reset, or what it committed."""
        key = _key(topic, group)
        reset = self._resets.get(key, _NONE).get(queue_id)
        return self._offsets.get(key, _NONE).get(queue_id) if reset is None else reset

    def pulled(self, topic: str, group: str, queue_id: int) -> int | None:
        """The queue offset after the last message the group pulled, if it has since the start."""
        return self._pulled.get(_key(topic, group), _NONE).get(queue_id)

    def commit(self, topic: str, group: str, queue_id: int, consume_offset: int) -> bool:
        """Store the group's progress; False while a reset is pending."""
        if queue_id in self._resets.get(_key(topic, group), _NONE):
            return False
        self.offsets_of(topic, group)[queue_id] = consume_offset
        return True

    def reset(self, topic: str, group: str, offsets: Offsets) -> None:
        """Move the group; consumers that are reading learn it from their next pull."""
        self._resets.setdefault(_key(topic, group), {}).update(offsets)
        self.offsets_of(topic, group).update(offsets)
        for listener in self.on_reset:
            listener(topic, group)

    def has_reset(self, topic: str, group: str) -> bool:
        """Whether any queue of the topic waits for its next pull to learn of a reset."""
        return _key(topic, group) in self._resets

    def take_reset(self, topic: str, group: str, queue_id: int) -> int | None:
        """The pending reset of a queue, which it answers once."""
        resets = self._resets.get(_key(topic, group))
        if resets is None:
            return None
        consume_offset = resets.pop(queue_id, None)
        if not resets:
            del self._resets[_key(topic, group)]
        return consume_offset

    def topics_of(self, group: str) -> list[str]:
        """The topics a group has progress on."""
        return [topic for topic, owner in self._pairs() if owner == group]

    def groups_of(self, topic: str) -> list[str]:
        """The groups that have progress on a topic."""
        return [group for name, group in self._pairs() if name == topic]

    def clone(self, topic: str, source: str, target: str) -> None:
        """Let one group go on from where another stands."""
        offsets = self._offsets.get(_key(topic, source))
        if offsets:
            self.offsets_of(topic, target).update(offsets)

    def delete_topic(self, topic: str) -> None:
        """Forget everybody's progress on a topic."""
        for table in (self._offsets, self._pulled, self._resets):
            for key in [key for key in table if key.partition("@")[0] == topic]:
                del table[key]

    def delete_group(self, group: str) -> None:
        """Forget a group's progress; dicts already given out stay the live ones."""
        for table in (self._offsets, self._pulled):
            for key, offsets in table.items():
                if key.partition("@")[2] == group:
                    offsets.clear()
        for key in [key for key in self._resets if key.partition("@")[2] == group]:
            del self._resets[key]

    def load(self, disk: Disk) -> None:
        """Take over what is on the disk; raises CorruptFile when it cannot be read."""
        saved = load(disk, OFFSETS_PATH, ConsumerOffsets)
        if saved is None:
            return
        self._offsets = saved.offsets
        self.version = saved.data_version
        self._saved = self._copy()

    def correct(self, end_of: Callable[[str, int], int]) -> int:
        """Bring back who stands behind the end of a queue, to be asked at a start; how many did.

        A crash can take messages that a group has consumed already. Their numbers are given out
        again, and a group that stayed where it was would pass over the messages that get them.
        """
        ahead = [
            (key, queue_id, end)
            for key, offsets in self._offsets.items()
            for queue_id, consume_offset in offsets.items()
            if consume_offset > (end := end_of(key.partition("@")[0], queue_id))
        ]
        for key, queue_id, end in ahead:
            self._offsets[key][queue_id] = end
        if ahead:
            names = ",".join(sorted({key for key, _, _ in ahead})[:NAMED_MAX])
            LOGGER.warning("offsets brought back to the ends of queues=%d of=%s", len(ahead), names)
        return len(ahead)

    def save(self) -> None:
        """Write the table if anything moved since it was last written."""
        self._notice()
        self.file.save()

    def save_now(self) -> None:
        """The last save before a stop."""
        self._notice()
        self.file.save_now()

    def table(self) -> ConsumerOffsets:
        """Everything, as it is shown and saved."""
        offsets = self._copy()
        return ConsumerOffsets(
            data_version=self.version, group_topics=_group_topics(offsets), offsets=offsets
        )

    def _copy(self) -> dict[str, Offsets]:
        return {key: offsets.copy() for key, offsets in self._offsets.items() if offsets}

    def _pairs(self) -> list[tuple[str, str]]:
        """(topic, group) of everything with progress."""
        return _pairs_of([key for key, offsets in self._offsets.items() if offsets])

    def _notice(self) -> None:
        for bring_up_to_date in self.before_save:
            bring_up_to_date()
        offsets = self._copy()
        if offsets != self._saved:
            self._saved = offsets
            self.version = next_version(self.version, self._clock)
            self.file.mark()

    def _encode(self) -> Callable[[], bytes]:
        version, offsets = self.version, self._saved
        return lambda: pretty.document(
            dataVersion=pretty.member(version),
            groupTopicMap=pretty.name_lists(_group_topics(offsets)),
            offsetTable=pretty.number_maps(offsets),
            pullOffsetTable=pretty.number_maps({}),
        )


_NONE: Final[Offsets] = {}


def _pairs_of(keys: Iterable[str]) -> list[tuple[str, str]]:
    """(topic, group) of each key; those of broadcasts have a third part, and are left out."""
    parts = [key.split("@") for key in keys]
    return [(pair[0], pair[1]) for pair in parts if len(pair) == 2]


def _group_topics(offsets: Mapping[str, Offsets]) -> dict[str, list[str]]:
    group_topics: dict[str, list[str]] = {}
    for topic, group in _pairs_of(offsets):
        group_topics.setdefault(group, []).append(topic)
    return group_topics


def _key(topic: str, group: str) -> str:
    return f"{topic}@{group}"
