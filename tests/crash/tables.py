"""The broker's tables on the same disk: after a crash each is as it was before or after a save."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from ariane.broker.consume_offsets import OffsetTable
from ariane.broker.journal import Journal
from ariane.broker.persistence import Saver
from ariane.broker.tables import TopicTable
from ariane.clock import Clock, ManualClock
from ariane.config import BrokerConfig
from ariane.disk import SimulatedDisk
from ariane.protocol.bodies import TopicConfig
from ariane.store import config_files

GROUPS = ("G1", "G2", "another-group-with-a-longer-name")
TOPICS = ("T", "U", "a-topic-with-a-long-name-" + "x" * 90)

Offsets = dict[str, dict[int, int]]
Queues = dict[str, int]


@dataclass(slots=True)
class TableContents:
    """What each file may hold: one content, or two while a save is under way."""

    offsets: list[Offsets] = field(default_factory=lambda: [{}])
    topics: list[Queues] = field(default_factory=lambda: [{}])

    def copy(self) -> TableContents:
        """Another of the same."""
        return TableContents(list(self.offsets), list(self.topics))

    def settle(self, disk: SimulatedDisk) -> None:
        """Check what is there; a content that was there may come or go until the next save."""
        tables = Tables(disk, ManualClock(), self)
        offsets, topics = tables.offsets_now(), tables.topics_now()
        assert offsets in self.offsets, f"offsets are {offsets}, expected one of {self.offsets}"
        assert topics in self.topics, f"topics are {topics}, expected one of {self.topics}"


class WatchedJournal(Journal):
    """Tells when a change could not be kept."""

    def __init__(self, disk: SimulatedDisk, path: str, tables: Tables) -> None:
        super().__init__(disk, path)
        self._tables = tables

    def append(self, lines: bytes) -> None:
        """Append, or tell."""
        try:
            super().append(lines)
        except Exception:
            self._tables.has_failed = True
            raise


class Tables:
    """Consume offsets and topics, as a broker keeps them."""

    def __init__(self, disk: SimulatedDisk, clock: Clock, contents: TableContents) -> None:
        self._contents = contents
        self._disk = disk
        self.has_failed = False
        saver = Saver(self._persist, journal_of=lambda path: WatchedJournal(disk, path, self))
        self._offsets = OffsetTable(clock, saver)
        self._topics = TopicTable(BrokerConfig(), clock, saver)
        self._system = self.topics_now()
        self._offsets.load(disk)
        self._topics.load(disk)

    def offsets_now(self) -> Offsets:
        """Every group's progress."""
        return self._offsets.table().offsets

    def topics_now(self) -> Queues:
        """The queues of each topic that is not the broker's own."""
        own = getattr(self, "_system", {})
        return {t.name: t.write_queue_count for t in self._topics if t.name not in own}

    def commit(self, random: Random) -> None:
        """Move some groups, forget some (so that the file shrinks), and save."""
        for _ in range(random.randint(1, 4)):
            group, topic = random.choice(GROUPS), random.choice(TOPICS)
            self._offsets.commit(topic, group, random.randrange(8), random.randrange(1 << 40))
        if random.random() < 0.2:
            self._offsets.delete_group(random.choice(GROUPS))
        now = self.offsets_now()
        self._contents.offsets = [*self._contents.offsets, now]
        self.has_failed = False
        self._offsets.save()
        if not self.has_failed:
            self._contents.offsets = [now]

    def change_topic(self, random: Random) -> None:
        """Make, change or delete a topic, which saves the table."""
        name = random.choice(TOPICS)
        before = self._contents.topics
        self.has_failed = False
        if random.random() < 0.3 and name in self.topics_now():
            after = {t: count for t, count in self.topics_now().items() if t != name}
            self._contents.topics = [*before, after]
            self._topics.delete(name)
        else:
            count = random.randint(1, 16)
            after = self.topics_now() | {name: count}
            self._contents.topics = [*before, after]
            self._topics.put(
                TopicConfig(name=name, read_queue_count=count, write_queue_count=count)
            )
        if random.random() < 0.2:
            self._topics.file.save()  # whole, and the journal goes
        if not self.has_failed:
            self._contents.topics = [after]

    def _persist(self, path: str, data: bytes) -> None:
        try:
            config_files.persist(self._disk, path, data)
        except Exception:
            self.has_failed = True
            raise
