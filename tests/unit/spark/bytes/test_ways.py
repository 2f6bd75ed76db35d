"""The ways to the bytes, against a broker: the same rows by each, whatever happens on the way."""

from __future__ import annotations

import logging
import multiprocessing
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from ariane import Message
from ariane.disk import RealDisk
from ariane.errors import AccessDenied, AccessImpossible, DataLoss
from ariane.spark.bytes import read_batches
from ariane.spark.bytes.contract import AccessOptions, AccessWay, QueueRange, ReadFilter
from ariane.spark.schema import COLUMNS
from ariane.sync import Client
from ariane.testing.embedded import EmbeddedBroker

WIRE, BULK, DIRECT, AUTO = AccessWay.WIRE, AccessWay.BULK, AccessWay.DIRECT, AccessWay.AUTO
WAYS = [WIRE, BULK, DIRECT, AUTO]
COUNT = 700


class BrokerOnDisk(EmbeddedBroker):
    """The same on a real disk, whose files others can map, however full that is."""

    def __init__(self, root: Path, **settings: object) -> None:
        full = {"diskMaxUsedSpaceRatio": 99, "cleanFileForciblyEnable": False}
        super().__init__(**full | settings)
        self._disk = RealDisk(root)  # type: ignore[assignment]


class World:
    """A broker, its files, and how they are read."""

    def __init__(self, broker: EmbeddedBroker, root: Path) -> None:
        self.broker = broker
        self.root = root

    def options(self, way: AccessWay, **more: Any) -> AccessOptions:
        with_files = way in (DIRECT, AUTO)
        given: dict[str, Any] = {
            "name_servers": (self.broker.name_server,),
            "store_path": str(self.root) if with_files else None,
            "timeout_s": 5.0,
        }
        return AccessOptions(access=way, **given | more)

    def read(
        self,
        way: AccessWay,
        topic: str,
        first: int,
        end: int,
        *,
        columns: Sequence[str] = tuple(COLUMNS),
        message_filter: ReadFilter | None = None,
        fail_on_data_loss: bool = True,
        **more: Any,
    ) -> pa.Table:
        batches = read_batches(
            self.options(way, **more),
            [QueueRange(topic, "broker-a", 0, first, end)],
            columns,
            message_filter,
            fail_on_data_loss=fail_on_data_loss,
            rows_per_batch=100,
        )
        return pa.Table.from_batches(list(batches) or [pa.record_batch({})])

    def offsets(self, way: AccessWay, topic: str, first: int, end: int, **more: Any) -> list[int]:
        found = self.read(way, topic, first, end, columns=["queueOffset"], **more)
        return [] if found.num_columns == 0 else found.column(0).to_pylist()

    def fill(self, topic: str, bodies: Sequence[bytes]) -> None:
        """Send to one queue, in order."""
        with Client(self.broker.name_server) as client:
            client.admin.create_topic(topic, write_queue_count=1)
            producer = client.producer("g", compression=None)
            numbered = [
                Message(topic, body, tags=f"t{i % 3}", keys=[f"k{i}"], properties={"n": str(i)})
                for i, body in enumerate(bodies)
            ]
            for start in range(0, len(bodies), 20):
                producer.send_batch(numbered[start : start + 20])
            client.admin.topic_stats(topic)  # who reads files has asked the broker how far they go


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("store")
    with BrokerOnDisk(root) as broker:
        made = World(broker, root)
        random = Random(7)
        made.fill(
            "T", [random.randbytes(random.choice([0, 3, 200, 9000]) + 1) for _ in range(COUNT)]
        )
        yield made


def test_every_way_gives_the_same_batches(world: World) -> None:
    expected = world.read(DIRECT, "T", 0, COUNT)
    assert expected.column("queueOffset").to_pylist() == list(range(COUNT))
    assert set(expected.column("brokerName").to_pylist()) == {"broker-a"}
    for way in WAYS:
        assert world.read(way, "T", 0, COUNT).equals(expected), way
        assert world.read(way, "T", 33, 655).equals(expected.slice(33, 655 - 33)), way


@pytest.mark.parametrize("way", WAYS)
def test_filters(world: World, way: AccessWay) -> None:
    tagged = world.offsets(way, "T", 5, 300, message_filter=ReadFilter("t1 || t2"))
    assert tagged == [i for i in range(5, 300) if i % 3]
    by_property = world.offsets(
        way, "T", 5, 300, message_filter=ReadFilter("n BETWEEN 50 AND 60", "SQL92")
    )
    assert by_property == list(range(50, 61))
    assert world.offsets(way, "T", 0, COUNT, message_filter=ReadFilter("none")) == []


@pytest.mark.parametrize("way", [WIRE, BULK])
def test_small_fetches_bring_the_same(world: World, way: AccessWay) -> None:
    assert world.offsets(way, "T", 0, COUNT, fetch_bytes=5_000) == list(range(COUNT))


@pytest.mark.parametrize("way", WAYS)
def test_an_end_that_the_queue_has_not_reached_is_an_error(world: World, way: AccessWay) -> None:
    for fails in (True, False):
        with pytest.raises(DataLoss) as lost:
            world.offsets(way, "T", 10, COUNT + 1, fail_on_data_loss=fails)
        assert (lost.value.topic, lost.value.broker, lost.value.queue_id) == ("T", "broker-a", 0)
        assert (lost.value.wanted, lost.value.available) == (COUNT + 1, COUNT)
        assert str(pickle.loads(pickle.dumps(lost.value))) == str(lost.value)


@pytest.mark.parametrize("way", [WIRE, BULK])
@pytest.mark.parametrize("how", ["refuse", "lose", "disconnect"])
def test_faults_are_waited_out(world: World, way: AccessWay, how: Any) -> None:
    kind = "PULL_MESSAGE" if way is WIRE else "BULK_READ"
    code = 2  # SYSTEM_BUSY
    fault = world.broker.fail(kind, times=2, how=how, code=code, topic="T")
    patience_s = 0.3 if how == "lose" else 5.0
    found = world.offsets(way, "T", 0, COUNT, fetch_bytes=100_000, timeout_s=patience_s)
    assert found == list(range(COUNT))
    fault.cancel()


@pytest.mark.parametrize("way", [WIRE, BULK])
def test_a_refusal_is_told_at_once(world: World, way: AccessWay) -> None:
    kind = "PULL_MESSAGE" if way is WIRE else "BULK_READ"
    fault = world.broker.fail(kind, times=None, code=16, remark="closed")
    with pytest.raises(AccessDenied, match="closed"):
        world.offsets(way, "T", 0, COUNT)
    fault.cancel()


def test_a_broker_without_bulk_reads_is_pulled_from(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.broker.fail("BULK_READ", times=None, code=3, remark="not supported")
    with caplog.at_level(logging.INFO, "ariane.spark"):
        for _ in range(2):
            assert world.offsets(AUTO, "T", 0, 50, store_path=None) == list(range(50))
    assert [r.message for r in caplog.records if "not by bulk" in r.message] == [
        f"reading broker=broker-a not by bulk: {world.broker.address} knows no bulk reads, "
        "as Apache's broker"
    ]
    with pytest.raises(AccessImpossible, match="knows no bulk reads"):
        world.offsets(BULK, "T", 0, 50)
    world.broker.heal()


def test_auto_takes_the_files_when_it_can_and_says_when_not(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = world.broker.requests("BULK_READ"), world.broker.requests("PULL_MESSAGE")
    assert world.offsets(AUTO, "T", 0, 50) == list(range(50))
    assert (world.broker.requests("BULK_READ"), world.broker.requests("PULL_MESSAGE")) == before
    with caplog.at_level(logging.INFO, "ariane.spark"):
        assert world.offsets(AUTO, "T", 0, 50, store_path=str(tmp_path)) == list(range(50))
    assert "not by direct: " in caplog.text
    assert world.broker.requests("BULK_READ") == before[0] + 1
    with pytest.raises(AccessImpossible, match="no directory commitlog"):
        world.offsets(DIRECT, "T", 0, 50, store_path=str(tmp_path))


def test_the_store_of_another_broker_is_not_taken_for_this_ones(
    tmp_path: Path, world: World
) -> None:
    with BrokerOnDisk(tmp_path) as other:
        there = World(other, tmp_path)
        there.fill("T", [b"another"] * COUNT)
        with pytest.raises(AccessImpossible, match="is not the one given"):
            world.offsets(DIRECT, "T", 0, 50, store_path=str(tmp_path))
        # One that lags behind the broker: the broker is asked instead, and has the rest.
        found = world.read(AUTO, "T", 0, 50, columns=["body"], store_path=str(tmp_path))
        assert b"another" not in found.column(0).to_pylist()


def test_files_are_read_without_a_broker(world: World) -> None:
    nobody = ("127.0.0.1:1",)
    assert world.offsets(DIRECT, "T", 0, 50, name_servers=()) == list(range(50))
    assert world.offsets(DIRECT, "T", 0, 50, name_servers=nobody) == list(range(50))
    for way in (WIRE, BULK):
        with pytest.raises(AccessImpossible, match="set namesrv"):
            world.offsets(way, "T", 0, 50, name_servers=())


def in_child(world: World, results: Any) -> None:
    found = {way: world.offsets(way, "T", 0, COUNT) for way in (WIRE, BULK, DIRECT)}
    results.send(all(offsets == list(range(COUNT)) for offsets in found.values()))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_worker_makes_connections_of_its_own(world: World) -> None:
    for way in (WIRE, BULK):
        world.offsets(way, "T", 0, 50)  # leaves a connection to be used again
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=in_child, args=(world, theirs))
    child.start()
    for way in (WIRE, BULK, DIRECT):  # at the same time
        assert world.offsets(way, "T", 0, COUNT) == list(range(COUNT))
    assert ours.poll(60) and ours.recv()
    child.join()


def test_a_reader_that_stops_half_way_leaves_nothing_behind(world: World) -> None:
    for way in WAYS:
        batches = read_batches(
            world.options(way, fetch_bytes=50_000),
            [QueueRange("T", "broker-a", 0, 0, COUNT)],
            ["queueOffset"],
            rows_per_batch=10,
        )
        assert next(batches).num_rows == 10
        batches.close()  # type: ignore[attr-defined]
        assert world.offsets(way, "T", 0, COUNT) == list(range(COUNT))
    assert world.broker.call(lambda: len(world.broker.broker.state.store.leases)) == 0


@pytest.mark.parametrize("way", WAYS)
def test_retention_that_passes_is_a_loss_or_stepped_over(tmp_path: Path, way: AccessWay) -> None:
    with BrokerOnDisk(tmp_path, mappedFileSizeCommitLog=1 << 16, fileReservedTime=1) as broker:
        world = World(broker, tmp_path)
        world.fill("T", [bytes(1000)] * 300)
        broker.advance(10)  # a checkpoint is taken
        broker.advance(2 * 3600)
        first = broker.call(lambda: broker.broker.state.store.min_offset("T", 0))
        assert 0 < first < 300
        with pytest.raises(DataLoss, match=f"wanted offset 3, available {first}"):
            world.offsets(way, "T", 3, 300)
        assert world.offsets(way, "T", 3, 300, fail_on_data_loss=False) == list(range(first, 300))


def test_retention_waits_for_whoever_reads_the_files(tmp_path: Path) -> None:
    with BrokerOnDisk(tmp_path, mappedFileSizeCommitLog=1 << 16, fileReservedTime=1) as broker:
        world = World(broker, tmp_path)
        world.fill("T", [bytes(1000)] * 300)
        broker.advance(3600 - 20)  # nothing is old enough yet

        def first() -> int:
            return broker.call(lambda: broker.broker.state.store.min_offset("T", 0))

        batches = read_batches(
            world.options(DIRECT),
            [QueueRange("T", "broker-a", 0, 100, 300)],
            ["queueOffset"],
            rows_per_batch=10,
        )
        offsets = next(batches).column(0).to_pylist()
        broker.advance(50)
        assert 0 < first() <= 100  # what is read stays
        for batch in batches:
            offsets += batch.column(0).to_pylist()
        assert offsets == list(range(100, 300))
        broker.advance(50)
        assert first() > 200  # and goes when it has been
