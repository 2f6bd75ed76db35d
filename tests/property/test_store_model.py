"""The store against plain lists, through appends, retention, stops, kills and power cuts."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ariane.clock import ManualClock
from ariane.disk import CrashMode, SimulatedDisk
from ariane.store.check import check
from ariane.store.store import Store
from tests.unit.store.shelf import (
    HOST,
    append,
    batch,
    config_with,
    crash_during,
    keys_found,
    open_store,
    read_all,
)

TOPICS = ("T", "Other-topic")
QUEUES = 2
BODY_BYTES = st.sampled_from([0, 5, 90, 700, 1900])


class Record(NamedTuple):
    """A message as its sender knows it."""

    log_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    keys: tuple[str, ...]


class StoreModel(RuleBasedStateMachine):
    """What was acknowledged is in `records`, in log order; the store must agree at every step."""

    @initialize(mode=st.sampled_from(["async", "sync", "staged"]), seed=st.integers(0, 2**32))
    def begin(self, mode: str, seed: int) -> None:
        self.config = config_with(
            flush_mode="SYNC_FLUSH" if mode == "sync" else "ASYNC_FLUSH",
            transient_pool_enabled=mode == "staged",
        )
        self.random = Random(seed)
        self.clock = ManualClock()
        self.disk = SimulatedDisk()
        self.store = open_store(self.disk, self.clock, self.config)
        self.records: list[Record] = []
        self.count = 0

    @rule(topic=st.sampled_from(TOPICS), queue_id=st.integers(0, QUEUES - 1), size=BODY_BYTES)
    def append(self, topic: str, queue_id: int, size: int) -> None:
        self.count += 1
        name = f"m{self.count}"
        body = name.encode() + b"x" * size
        keys = (f"k{name}", f"also-{name}")
        placed = append(self.store, body, topic, queue_id, KEYS=" ".join(keys), UNIQ_KEY=name)
        self.records.append(
            Record(placed.log_offset, topic, queue_id, placed.queue_offset, body, (*keys, name))
        )

    @rule(topic=st.sampled_from(TOPICS), size=st.integers(1, 20))
    def append_batch(self, topic: str, size: int) -> None:
        bodies = [f"b{self.count + i}".encode() for i in range(1, size + 1)]
        self.count += size
        placed = self.store.append_batch(batch(bodies, topic))
        for i, (body, message_id) in enumerate(zip(bodies, placed.message_ids, strict=True)):
            offset = int(message_id[16:], 16)
            self.records.append(
                Record(offset, topic, 0, placed.queue_offset + i, body, (body.decode(),))
            )

    @rule()
    def flush(self) -> None:
        self.store.flush()
        assert self.store.flushed == self.store.written

    @rule()
    def checkpoint(self) -> None:
        self.store.checkpoint()

    @rule(seconds=st.floats(0.1, 20))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.store.tick()

    @rule()
    def write_back(self) -> None:
        self.disk.write_back(self.random)

    @rule()
    def remove_old_segments(self) -> None:
        self.store.checkpoint()
        self.disk.used_ratio = 0.88
        self.store.clean()
        self.disk.used_ratio = None
        self.records = [r for r in self.records if r.log_offset >= self.store.log.first_position]

    @precondition(lambda self: self.count > 10)
    @rule(topic=st.sampled_from(TOPICS))
    def delete_topic(self, topic: str) -> None:
        self.store.delete_topic(topic)
        self.records = [record for record in self.records if record.topic != topic]

    @rule()
    def stop_and_start(self) -> None:
        self.store.stop()
        assert not self.disk.exists("abort")
        end = self.store.written
        self.come_back(self.disk.crash_image(self.random, CrashMode.DROP))
        assert self.store.written == end

    @rule()
    def kill(self) -> None:
        end = self.committed
        self.come_back(self.disk.crash_image(self.random, CrashMode.KILL), (CrashMode.KILL,))
        assert self.store.written >= end

    @rule(mode=st.sampled_from([CrashMode.DROP, CrashMode.MIXED]))
    def cut_power(self, mode: CrashMode) -> None:
        flushed = self.store.flushed
        self.come_back(self.disk.crash_image(self.random, mode))
        assert self.store.written >= flushed

    @property
    def committed(self) -> int:
        return self.store.visible if self.config.transient_pool_enabled else self.store.written

    def come_back(
        self, disk: SimulatedDisk, modes: tuple[CrashMode, ...] = tuple(CrashMode)
    ) -> None:
        """Open what a crash left, itself cut short now and then, and forget what was lost."""
        while self.random.random() < 0.3:
            cut_short = crash_during(
                disk,
                self.random,
                self.random.randrange(1, 40),
                lambda disk=disk: Store.open(self.config, disk, self.clock, store_host=HOST),
                modes,
            )
            disk = cut_short or disk.crash_image(self.random, CrashMode.KILL)
        self.disk = disk
        self.store = open_store(disk, self.clock, self.config)
        first, end = self.store.log.first_position, self.store.written
        self.records = [record for record in self.records if first <= record.log_offset < end]
        for record in self.records:
            for key in record.keys:
                assert record.log_offset in keys_found(self.store, record.topic, key)
        report = check(disk, self.config)
        assert report.problems == []

    @invariant()
    def agrees(self) -> None:
        visible = [r for r in self.records if r.log_offset < self.store.visible]
        for topic in TOPICS:
            for queue_id in range(QUEUES):
                expected = [
                    (r.queue_offset, r.log_offset, r.body)
                    for r in visible
                    if (r.topic, r.queue_id) == (topic, queue_id)
                ]
                found = read_all(self.store, topic, queue_id)
                assert [(m.queue_offset, m.log_offset, m.body) for m in found] == expected
                if expected:
                    assert self.store.min_offset(topic, queue_id) == expected[0][0]
                    assert self.store.max_offset(topic, queue_id) == expected[-1][0] + 1

    @invariant()
    def nothing_was_written_without_blocks(self) -> None:
        assert self.disk.unreserved_writes() == []

    @invariant()
    def watermarks_are_in_order(self) -> None:
        store = self.store
        assert store.flushed <= store.written and store.visible <= store.written
        if self.config.is_sync_flush:
            assert store.visible <= store.flushed


StoreModel.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestStoreModel = StoreModel.TestCase
