"""Batches against the obvious model: every row once, in order, whatever was killed and when.

The log alone is the truth, and the size of a record is written last: so a kill at any instant is
the log cut where some record begins.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.broker.staging import publishing, service
from ariane.codes import ResponseCode
from ariane.disk import CrashMode, SimulatedDisk
from ariane.protocol.bodies.staging import ChunkReference
from tests.unit.broker.rig import SMALL_STORE
from tests.unit.broker.staging.world import QUERY, StagingWorld, batch_body

SEGMENT_BYTES = 1 << 14  # so that slices, notes and rows are parted by segments too
STORE = msgspec.structs.replace(SMALL_STORE, segment_bytes=SEGMENT_BYTES)
QUEUES = (0, 1)


@pytest.fixture(autouse=True, scope="module")
def _small_steps() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publishing, "ROWS_AT_ONCE", 7)
        patch.setattr(publishing, "LATE_ROWS_AT_ONCE", 3)
        patch.setattr(service, "SLICE_S", 0.0)
        yield


def ours(world: StagingWorld, queue_id: int) -> list[str]:
    return [row for row in world.rows(queue_id) if not row.startswith("other")]


def stage_all(
    world: StagingWorld, batch: int, sizes: list[int], attempt: int
) -> list[ChunkReference]:
    """One attempt of a batch: chunks for the queues in turn, every third of rows in the past."""
    chunks = []
    past = f"TIMER_DELIVER_MS\x01{world.clock.wall_ms() - 1000}\x02"
    for number, size in enumerate(sizes):
        rows = [f"{batch}/{number}/{row}" for row in range(size)]
        body = batch_body(rows, properties=past if number % 3 == 2 else "")
        queue_id = number % len(QUEUES)
        fields = {"batchId": batch, "attempt": attempt, "sequence": number, "body": body}
        chunks.append(world.chunk(rows, queue_id=queue_id, **fields))
    return chunks


def expected(batches: list[list[int]], queue_id: int) -> list[str]:
    return [
        f"{batch}/{number}/{row}"
        for batch, sizes in enumerate(batches)
        for number, size in enumerate(sizes)
        if number % len(QUEUES) == queue_id
        for row in range(size)
    ]


def records(world: StagingWorld, first: int) -> list[int]:
    """Where records begin in the log from an offset on, and where the last one ends."""
    log, at, found = world.state.store.log, first, []
    while (record := log.next_record(at, log.end)) is not None:
        found.append(record[0])
        at = sum(record)
    return [*found, at]


def cut(disk: SimulatedDisk, log_offset: int) -> SimulatedDisk:
    """The disk as a kill before that record was whole would have left it."""
    image = disk.crash_image(Random(0), CrashMode.KILL)
    for name, size in image.names("commitlog"):
        first = max(log_offset - int(name), 0)
        if first < size:
            file = image.mapped(f"commitlog/{name}", size)
            file.buffer[first:size] = bytes(size - first)
            file.close()
    return image


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    cuts=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=3),
    others=st.integers(0, 2),
)
def test_a_kill_at_any_instant_neither_loses_nor_doubles_a_row(
    sizes: list[int], cuts: list[float], others: int
) -> None:
    world = StagingWorld(STORE)
    chunks = stage_all(world, 0, sizes, attempt=0)
    staged_end = world.state.store.written
    for share in cuts:
        peer = world.ask_to_publish(chunks)
        for turn in range(200):
            world.state.staging.turn()
            if peer.sent:
                break
            for number in range(others):
                world.rig.send("T", number, body=f"other{turn}".encode())
        instants = records(world, staged_end)
        world.disk = cut(world.disk, instants[round(share * (len(instants) - 1))])
        world.start()
    world.clock.advance(30)
    assert world.publish(chunks).code == ResponseCode.SUCCESS
    for queue_id in QUEUES:
        assert ours(world, queue_id) == expected([sizes], queue_id)


BATCH = st.tuples(
    st.lists(st.integers(1, 20), min_size=1, max_size=4),
    st.lists(
        st.tuples(
            st.sampled_from(["staging", "deciding", "publishing", "after"]),
            st.sampled_from(list(CrashMode)),
            st.integers(0, 1000),
            st.booleans(),
        ),
        max_size=2,
    ),
)


WAYS = [{}, {"flush_mode": "SYNC_FLUSH"}, {"transient_pool_enabled": True}]


@settings(max_examples=90)
@given(batches=st.lists(BATCH, min_size=1, max_size=4), way=st.sampled_from(WAYS))
def test_batches_run_again_until_they_are_answered_arrive_once(
    batches: list[tuple[list[int], list[tuple[str, CrashMode, int, bool]]]], way: dict[str, Any]
) -> None:
    """As Spark does it: a batch is tried until it was answered; a crash means a new attempt."""
    world = StagingWorld(msgspec.structs.replace(STORE, **way))
    acknowledged: list[list[int]] = []
    for batch, (sizes, crashes) in enumerate(batches):
        for attempt, (when, mode, seed, is_saved) in enumerate(crashes):
            chunks = stage_all(world, batch, sizes, attempt)
            if is_saved:
                world.state.staging.save()
            if when != "staging":
                peer = world.ask_to_publish(chunks, batch=batch)
                turns = {"deciding": 1, "publishing": 2 + seed % 7, "after": 200}[when]
                for _ in range(turns):
                    world.state.staging.turn()
                assert when != "after" or peer.sent[0].code == ResponseCode.SUCCESS
            world.kill(mode, seed)
            for queue_id in QUEUES:
                held = ours(world, queue_id)
                done = expected(acknowledged, queue_id)
                assert held[: len(done)] == done, "what was answered stays"
        chunks = stage_all(world, batch, sizes, attempt=9)
        assert world.publish(chunks, batch=batch).code == ResponseCode.SUCCESS
        acknowledged.append(sizes)
    for queue_id in QUEUES:
        held = ours(world, queue_id)
        assert Counter(held) == Counter(expected(acknowledged, queue_id))
        assert held == expected(acknowledged, queue_id)
    assert world.state.staging.ledger.queries[QUERY].last_batch == len(batches) - 1
