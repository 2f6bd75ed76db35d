"""Lives of a small store, cut short after any operation: by a kill, or by the power.

A life is one process on one disk: it opens the store, does this and that by the dice, and after
some of the disk's operations an image is taken of what a crash would leave. Each image is opened by
a life of its own, which checks that every promise is kept, and which is sometimes cut short itself:
while it recovers, or after it has gone on for a while. Everything follows from one seed.
"""

from __future__ import annotations

import errno
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Final
from unittest.mock import patch

from ariane.clock import ManualClock
from ariane.config import StoreConfig
from ariane.disk import CrashMode, SimulatedDisk
from ariane.errors import StoreError
from ariane.store import background
from ariane.store.checkpoint import CheckpointFile
from ariane.store.messages import BatchEntry, NewBatch, NewMessage
from ariane.store.store import Store

from .halfway import stop_half_way
from .lanes import Lanes, SteppedLane
from .promises import Promises, check_contents, settle
from .records import BORN, BORN_AT_MS, SCHEDULE_TOPIC, Message
from .tables import Tables

TOPICS: Final = ("T", "Other-topic", "%RETRY%" + "group" * 26, SCHEDULE_TOPIC)
DELETABLE: Final = TOPICS[:2]
MODES: Final = (CrashMode.KILL, CrashMode.DROP, CrashMode.MIXED, CrashMode.MIXED)
STORE_HOSTS: Final = ("127.0.0.1", "fd00::17")
DEPTH_MAX: Final = 5
TRAIL_LENGTH: Final = 12
# How likely a crash is after an operation of a first life, of a later one, of one that recovers,
# and how likely it is that a life goes on once everything was found in order. Together: each image
# leads to about half another.
CHANCES: Final = (0.08, 0.03)
RECOVERY_CHANCE: Final = 0.008
GO_ON_CHANCE: Final = 0.1
FAULTS: Final = ("sync", "sync", "sync", "sync_directory", "write", "rename", "create", "remove")
AWAITED: Final = ("prepare", "make")  # lanes an append may wait for: none comes beside their jobs
AMPLE_BYTES: Final = 1 << 40
STOP_RATIO: Final = 0.9


class Violation(BaseException):
    """A promise was broken. Not an Exception, so that the store cannot swallow it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What sort of store, and whether its background work overtakes."""

    flush_mode: str = "ASYNC_FLUSH"
    is_staged: bool = False
    is_stepped: bool = False

    def __str__(self) -> str:
        return next(name for name, kind in KINDS.items() if kind == self)


KINDS: Final = {
    "async": Kind(),
    "async, background": Kind(is_stepped=True),
    "sync": Kind("SYNC_FLUSH"),
    "sync, background": Kind("SYNC_FLUSH", is_stepped=True),
    "staged": Kind(is_staged=True),
    "staged, background": Kind(is_staged=True, is_stepped=True),
}


@dataclass(slots=True)
class Campaign:
    """Histories until enough images have been checked."""

    kind: Kind
    seed: int
    image_count_max: int
    weights: dict[str, float] = field(default_factory=lambda: dict(ACTIONS))
    image_count: int = 0
    history_count: int = 0
    generations: Counter[int] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    trail: deque[str] = field(default_factory=lambda: deque(maxlen=TRAIL_LENGTH))

    def run(self) -> Campaign:
        """Check that many images; AssertionError names the seed and what went before."""
        with patch.object(background, "ThreadLane", SteppedLane), _quiet("ariane"):
            return self._run()

    def _run(self) -> Campaign:
        try:
            while not self.is_done:
                self.history_count += 1
                self._history(Random(f"{self.seed} {self.history_count}"))
        except Violation as violation:
            raise AssertionError(
                f"{violation}; seed {self.seed}, {self.kind}, history {self.history_count}, image"
                f" {self.image_count}; after: {', '.join(self.trail)}"
            ) from violation.__cause__
        return self

    def __str__(self) -> str:
        lives = " ".join(f"{self.generations[depth]}" for depth in sorted(self.generations))
        return (
            f"{self.image_count} crash images, seed {self.seed}, {self.kind}: {lives} by"
            f" generation, {self.history_count} histories,"
            f" {sum(self.operations.values())} disk operations"
        )

    @property
    def is_done(self) -> bool:
        """Whether enough images were checked."""
        return self.image_count >= self.image_count_max

    def _history(self, random: Random) -> None:
        promises = Promises(_config(self.kind, random), random.choice(STORE_HOSTS))
        self.trail.clear()
        life = Life(self, random, SimulatedDisk(), promises, depth=0)
        life.begin()
        for _ in range(random.randint(20, 80)):
            life.act()


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Thousands of recoveries have much to tell."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _forget_claims(disk: SimulatedDisk, *, is_all: bool) -> None:
    """Leave of the checkpoint what another broker would have written, or nothing."""
    if dict(disk.names("")).get("checkpoint"):
        content = disk.read("checkpoint")
        kept = 0 if is_all else 1024  # the times; claims follow
        disk.write("checkpoint", content[:kept].ljust(len(content), b"\0"))
        disk.mapped("checkpoint", len(content)).sync(0, len(content))


def _config(kind: Kind, random: Random) -> StoreConfig:
    return StoreConfig(
        segment_bytes=random.choice([2048, 4096, 5000, 8192, 16384]),
        queue_file_bytes=20 * random.randint(10, 40),
        index_slot_count=random.randint(7, 31),
        index_entry_count=random.randint(20, 200),
        message_bytes_max=4096,
        flush_mode=kind.flush_mode,
        transient_pool_enabled=kind.is_staged,
        checkpoint_interval_ms=random.choice([300, 1000, 3000]),
        disk_stop_ratio=STOP_RATIO,
        delete_batch_max=random.randint(1, 5),
        index_enabled=random.random() < 0.95,
    )


class Life:
    """One process on one disk."""

    def __init__(
        self,
        campaign: Campaign,
        random: Random,
        disk: SimulatedDisk,
        promises: Promises,
        *,
        depth: int,
    ) -> None:
        self._campaign = campaign
        self._random = random
        self._disk = disk
        self._promises = promises
        self._depth = depth
        since_ms = 60_000 * depth + random.randrange(-70_000, 1000)  # clocks are set back, too
        self._clock = ManualClock(wall_ms=1_700_000_000_000 + since_ms)
        self._lanes: Lanes | None = None
        self._store: Store | None = None  # none while it recovers
        self._chance = 0.0  # of an image after an operation

    # ---------------------------------------------------------------- beginning and ending

    def begin(self) -> None:
        """Open the store and check everything."""
        self._disk.now_s = lambda: self._clock.wall_ms() / 1000
        self._disk.capacity_bytes, self._disk.used_ratio = AMPLE_BYTES, None
        self._chance = RECOVERY_CHANCE if self._depth else CHANCES[0]
        # Without a claim the index is believed as it lies there, which is right only once: that is
        # what claims are for.
        has_claim = CheckpointFile(self._disk).load().claim is not None
        if self._depth == DEPTH_MAX or (self._promises.records and not has_claim):
            self._chance = 0.0
        self._disk.on_operation = self._after_operation
        self._open()
        self._chance = 0.0
        self._check()
        if (topic := self._promises.deleting) is not None:
            self._delete_topic(topic)  # whoever asked has had no answer, and asks again
            self._check()
        self._tables = Tables(self._disk, self._clock, self._promises.tables)

    def prove_usable(self) -> None:
        """Take a few more messages, sometimes through a clean stop."""
        for _ in range(self._random.randint(1, 4)):
            self._append()
        if self._random.random() < 0.3:
            self._restart()
        self._check()

    def _open(self) -> None:
        """Open the store; until it is seen what came back, only what was promised before holds."""
        if self._depth and self._random.random() < 0.03:
            self._fail(within=30)
            try:
                store = self._started()
            except (StoreError, OSError) as refusal:
                assert "Input/output error" in str(refusal), refusal
                self._disk.heal()
                self._disk = self._disk.crash_image(self._random, CrashMode.KILL)
                self._disk.on_operation = self._after_operation
                store = self._started()
        else:
            store = self._started()
        self._disk.heal()
        settle(store, self._disk, self._promises)
        self._store = store

    def _started(self) -> Store:
        self._lanes = Lanes(self._random) if self._campaign.kind.is_stepped else None
        for directory in ("consumequeue", "index"):
            self._disk.write_again(directory)  # as recovery does with every entry it walks past
        store = Store.open(
            self._promises.config,
            self._disk,
            self._clock,
            store_host=(self._promises.store_host, 10911),
            post=self._lanes,
        )
        store.start()
        return store

    def _restart(self) -> None:
        self._open_store.stop()
        self._keep_up()
        self._store = None
        self._disk.heal()
        if self._random.random() < 0.5:
            self._clock.advance(self._random.random() * 100)
        self._open()

    @property
    def _open_store(self) -> Store:
        assert self._store is not None
        return self._store

    def _check(self) -> None:
        is_quiet = self._lanes is None or not self._lanes.is_busy
        check_contents(
            self._open_store, self._disk, self._promises, self._random, is_quiet=is_quiet
        )

    # ---------------------------------------------------------------- crashing

    def _after_operation(self, kind: str, path: str) -> None:
        self._campaign.operations[kind] += 1
        if self._random.random() < self._chance:
            self._crash(f"{kind} {path}")
        lanes = self._lanes
        if lanes is None or lanes.working is None or not lanes.is_loop_free:
            return
        if lanes.working.name not in AWAITED and self._random.random() < 0.1:
            lanes.is_loop_free = False
            self._append()
            lanes.is_loop_free = True

    def _crash(self, after: str) -> None:
        if self._campaign.is_done:
            return
        self._keep_up()
        mode = self._random.choice(MODES)
        promises = self._promises.copy(is_power_cut=mode is not CrashMode.KILL)
        image = self._disk.crash_image(self._random, mode)
        forgets = mode is CrashMode.KILL and self._random.random() < 0.1
        if forgets and not promises.lives.total() and not promises.deleting:
            _forget_claims(image, is_all=self._random.random() < 0.5)
        self._live_on(image, promises, f"{mode.name} after {after}")

    def _crash_half_way(self, before: SimulatedDisk) -> None:
        """As if the process had been killed within the append that was the last thing done."""
        if self._campaign.is_done:
            return
        promises = self._promises.copy(is_power_cut=False)
        record = promises.records.pop()
        promises.pending = [record.message]
        stop_half_way(before, self._disk, record, promises.config, self._random)
        self._live_on(before, promises, f"KILL within the append at {record.log_offset}")

    def _live_on(self, image: SimulatedDisk, promises: Promises, reason: str) -> None:
        """Let another life begin where a crash ended one, and check everything."""
        campaign, random = self._campaign, self._random
        campaign.image_count += 1
        campaign.generations[self._depth + 1] += 1
        campaign.trail.append(reason)
        try:
            life = Life(campaign, random, image, promises, depth=self._depth + 1)
            life.begin()
            if self._depth + 1 < DEPTH_MAX and random.random() < GO_ON_CHANCE:
                for _ in range(random.randint(3, 30)):
                    life.act()
            life.prove_usable()
        except Exception as error:
            raise Violation(f"{type(error).__name__}: {error}") from error
        campaign.trail.pop()

    def _keep_up(self) -> None:
        """Let the promises say what the store says by now."""
        store, promises = self._store, self._promises
        if store is None:
            return
        assert store.visible <= store.written and store.flushed <= store.written
        promises.power_end = max(promises.power_end, store.flushed)
        if promises.config.transient_pool_enabled:
            promises.kill_end = max(promises.kill_end, store.visible)
        elif promises.records:
            promises.kill_end = max(promises.kill_end, promises.records[-1].end)
        if promises.config.is_sync_flush:
            assert store.visible <= store.flushed, "shown before it was flushed"
        promises.first = store.log.first_position
        claim = CheckpointFile(self._disk).load().claim
        assert claim is None or claim.log_offset <= store.flushed, "claimed before it was flushed"

    # ---------------------------------------------------------------- doing

    def act(self) -> None:
        """Do one thing, with crashes on the way."""
        if self._campaign.is_done:
            return
        names, weights = zip(*self._campaign.weights.items(), strict=True)
        name = self._random.choices(names, weights)[0]
        self._chance = CHANCES[0] if self._depth == 0 else CHANCES[1]
        self._campaign.trail.append(name)
        try:
            getattr(self, f"_{name}")()
            if self._random.random() < 2 * self._chance:
                self._crash(name)
            self._keep_up()
        except Exception as error:
            raise Violation(f"{type(error).__name__}: {error}") from error
        self._chance = 0.0

    def _append(self) -> None:
        is_cut = (
            self._random.random() < self._chance
            and not self._promises.config.transient_pool_enabled
        )
        before = self._disk.crash_image(self._random, CrashMode.KILL) if is_cut else None
        count, operations = len(self._promises.records), self._campaign.operations.total()
        self._place([self._message()], self._append_one)
        if before is None or len(self._promises.records) == count:
            return
        if self._campaign.operations.total() == operations:
            self._crash_half_way(before)

    def _append_some(self) -> None:
        for _ in range(self._random.choice([2, 5, 12, 30])):
            self._append()

    def _append_batch(self) -> None:
        first = self._message()
        count = self._random.randint(1, 8)
        size = (self._promises.config.segment_bytes // count) - 500
        messages = [first, *(self._message(first.queue, size) for _ in range(count - 1))]
        if sum(400 + len(m.body) + len(m.properties) for m in messages) < (
            self._promises.config.segment_bytes
        ):
            self._place(messages, self._append_together)

    def _place(
        self, messages: list[Message], append: Callable[[list[Message]], list[tuple[int, int, int]]]
    ) -> None:
        promises = self._promises
        expected = promises.next_offset(messages[0].queue)
        promises.pending = messages
        try:
            places = append(messages)
        except StoreError as refusal:
            promises.pending = []
            assert self._is_refusing() or isinstance(refusal.__cause__, OSError), refusal
            return
        promises.pending = []
        for i, (message, (log_offset, queue_offset, store_ms)) in enumerate(
            zip(messages, places, strict=True)
        ):
            assert queue_offset == expected + i, f"offset {queue_offset}, not {expected + i}"
            record = promises.record_of(
                message, log_offset=log_offset, queue_offset=queue_offset, store_ms=store_ms
            )
            assert not promises.records or log_offset >= promises.records[-1].end
            promises.records.append(record)

    def _append_one(self, messages: list[Message]) -> list[tuple[int, int, int]]:
        (message,) = messages
        placed = self._open_store.append(
            NewMessage(
                topic=message.topic,
                queue_id=message.queue_id,
                body=message.body,
                properties=message.properties,
                flag=message.flag,
                born_at_ms=BORN_AT_MS,
                born_host=BORN,
            )
        )
        return [(placed.log_offset, placed.queue_offset, placed.store_ms)]

    def _append_together(self, messages: list[Message]) -> list[tuple[int, int, int]]:
        placed = self._open_store.append_batch(
            NewBatch(
                topic=messages[0].topic,
                queue_id=messages[0].queue_id,
                entries=[BatchEntry(m.flag, m.body, m.properties) for m in messages],
                born_at_ms=BORN_AT_MS,
                born_host=BORN,
            )
        )
        return [
            (int(message_id[-16:], 16), placed.queue_offset + i, placed.store_ms)
            for i, message_id in enumerate(placed.message_ids)
        ]

    def _message(self, queue: tuple[str, int] | None = None, body_max: int = 4096) -> Message:
        random = self._random
        number = random.randrange(1 << 48)
        while queue is None or queue[0] == self._promises.deleting:
            queue = random.choices(TOPICS, (6, 2, 1, 1))[0], random.choices((0, 1, 5), (8, 1, 1))[0]
        room = min(body_max, self._promises.config.segment_bytes - 1100)
        size = min(random.choice([0, 5, 30, 30, 90, 90, 90, 300, 700, 3000]), max(room, 0))
        return Message(
            topic=queue[0],
            queue_id=queue[1],
            body=random.randbytes(size),
            unique_key=None if random.random() < 0.1 else f"{number:012X}",
            keys=tuple(f"key{random.randrange(300)}" for _ in range(random.randrange(4))),
            tags=random.choice([None, "TagA", "TagB"]),
            delay_level=random.randint(1, 4) if queue[0] == SCHEDULE_TOPIC else 0,
            note=b"n" * random.choice([0, 0, 0, 600]),
            flag=number & 0xFF,
        )

    def _flush(self) -> None:
        self._open_store.flush()

    def _checkpoint(self) -> None:
        self._open_store.checkpoint()

    def _tick(self) -> None:
        self._clock.advance(self._random.choice([0.01, 0.2, 0.6, 2]))
        if self._random.random() < 0.05:
            self._clock.step_wall(-5000)
        self._open_store.tick()

    def _prepare(self) -> None:
        self._open_store.prepare()

    def _write_back(self) -> None:
        self._disk.write_back(self._random)

    def _step_lanes(self) -> None:
        for _ in range(self._random.randint(1, 6)):
            if self._lanes is None or not self._lanes.step():
                break

    def _remove_old(self) -> None:
        store = self._open_store
        self._disk.used_ratio = 0.88
        store.clean()
        self._disk.used_ratio = None
        base = store.written - store.written % self._promises.config.segment_bytes
        assert store.log.first_position <= base, "the newest segment was removed"

    def _commit_offsets(self) -> None:
        self._tables.commit(self._random)

    def _change_topic(self) -> None:
        self._tables.change_topic(self._random)

    def _delete(self) -> None:
        if not self._is_refusing():
            self._delete_topic(self._promises.deleting or self._random.choice(DELETABLE))

    def _delete_topic(self, topic: str) -> None:
        self._promises.deleting = topic
        outcomes: list[Exception | None] = []
        self._open_store.delete_topic(topic, outcomes.append)
        if self._lanes is not None:
            self._lanes.settle()
        if outcomes != [None]:
            assert self._is_refusing() or "file cannot be made" in str(outcomes), outcomes
            if outcomes and outcomes[0].__cause__ is None:  # refused before anything was removed
                self._promises.deleting = None
            return
        if not self._is_refusing():
            self._promises.deleting = None
            self._promises.lives[topic] += 1

    def _stop_and_start(self) -> None:
        self._restart()
        self._check()

    def _look(self) -> None:
        self._check()

    def _fail(self, within: int = 5) -> None:
        kind = self._random.choice(FAULTS)
        error = OSError(errno.EIO, "Input/output error")
        self._disk.plant(kind, error, after=self._random.randrange(within))

    def _fill_disk(self) -> None:
        """Let the disk fill up, to its last page or past the share it may be used to; and empty."""
        if self._random.random() < 0.5:
            used = AMPLE_BYTES - self._disk.free_bytes()
            self._disk.capacity_bytes = used + self._random.randrange(8) * 4096
        else:
            self._disk.used_ratio = STOP_RATIO + 0.01
            self._pass_a_second()
        for _ in range(self._random.randint(1, 8)):
            self._append()
            if self._random.random() < 0.2:
                self._commit_offsets()
        self._disk.capacity_bytes, self._disk.used_ratio = AMPLE_BYTES, None
        self._pass_a_second()

    def _pass_a_second(self) -> None:
        """Long enough for the store to look at the disk."""
        for _ in range(2):
            self._clock.advance(1.1)
            self._open_store.tick()

    def _is_refusing(self) -> bool:
        """Whether the store has a reason to take no message."""
        is_full = self._disk.free_bytes() < 64 * 4096 or self._disk.used_ratio is not None
        return self._open_store.read_only_reason is not None or is_full


ACTIONS: Final[dict[str, float]] = {
    "append": 20,
    "append_some": 8,
    "append_batch": 6,
    "flush": 4,
    "checkpoint": 4,
    "tick": 6,
    "prepare": 3,
    "write_back": 3,
    "step_lanes": 14,
    "remove_old": 3,
    "commit_offsets": 3,
    "change_topic": 1,
    "delete": 1,
    "stop_and_start": 1,
    "look": 2,
    "fail": 0.4,
    "fill_disk": 1,
}
