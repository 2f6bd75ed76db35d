"""Groups' progress: committed, reset, forgotten, and kept in Apache's file."""

from __future__ import annotations

import pytest

from ariane.broker.consume_offsets import OFFSETS_PATH, OffsetTable
from ariane.broker.persistence import Saver
from ariane.clock import ManualClock
from ariane.disk import SimulatedDisk
from ariane.protocol import fastjson
from ariane.store import config_files
from tests.golden.frames import golden_config


class World:
    """An offset table and the disk it is kept on."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.writes = 0
        self.offsets = self.again()

    def again(self) -> OffsetTable:
        """The table after a restart."""
        offsets = OffsetTable(ManualClock(), Saver(self._persist))
        offsets.load(self.disk)
        return offsets

    def _persist(self, path: str, data: bytes) -> None:
        assert path == OFFSETS_PATH
        self.writes += 1
        config_files.persist(self.disk, path, data)


@pytest.fixture
def world() -> World:
    return World()


def test_apaches_file_is_read_and_written_back_alike(world: World) -> None:
    golden = golden_config("consumerOffset.json")
    config_files.persist(world.disk, OFFSETS_PATH, golden)
    offsets = world.again()
    assert offsets.get("%RETRY%g_retry_1kff4f_41", "g_retry_1kff4f_41", 0) == 2
    assert offsets.topics_of("CID_RMQ_SYS_TRANS") == [
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_TRANS_HALF_TOPIC",
    ]
    offsets.commit("new", "readers", 11, 5)
    offsets.save()
    ours, theirs = (fastjson.loads(text) for text in (world.disk.read(OFFSETS_PATH), golden))
    assert isinstance(ours, dict)
    assert isinstance(theirs, dict)
    assert ours.keys() == theirs.keys()
    assert ours["offsetTable"].pop("new@readers") == {"11": 5}  # type: ignore[union-attr, arg-type]
    assert ours["offsetTable"] == theirs["offsetTable"]
    assert b"\n\t\t\t11:5\n" in world.disk.read(OFFSETS_PATH)  # numbers as keys stay bare
    assert world.again().get("new", "readers", 11) == 5


def test_offsets_survive_a_restart_and_unchanged_ones_are_not_written_again(world: World) -> None:
    world.offsets.commit("T", "g", 0, 10)
    world.offsets.save()
    world.offsets.save()
    assert world.writes == 1
    world.offsets.offsets_of("T", "g")[1] = 7  # as the hot lane does it
    world.offsets.save()
    assert world.writes == 2
    after = world.again()
    assert (after.get("T", "g", 0), after.get("T", "g", 1)) == (10, 7)
    assert after.version == world.offsets.version
    assert world.offsets.version.counter == 2


def test_offsets_may_go_back(world: World) -> None:
    world.offsets.commit("T", "g", 0, 10)
    world.offsets.commit("T", "g", 0, 3)
    assert world.offsets.get("T", "g", 0) == 3


def test_a_reset_holds_until_a_pull_has_learnt_of_it(world: World) -> None:
    told: list[tuple[str, str]] = []
    offsets = world.offsets
    offsets.on_reset.append(lambda topic, group: told.append((topic, group)))
    offsets.commit("T", "g", 0, 10)
    offsets.reset("T", "g", {0: 2, 1: 5})
    assert told == [("T", "g")]
    assert offsets.get("T", "g", 0) == 2
    assert not offsets.commit("T", "g", 0, 11)  # tells of the place before the reset
    assert offsets.get("T", "g", 0) == 2
    assert offsets.take_reset("T", "g", 0) == 2
    assert offsets.take_reset("T", "g", 0) is None
    assert offsets.commit("T", "g", 0, 3)
    assert offsets.get("T", "g", 0) == 3
    assert offsets.has_reset("T", "g")  # queue 1 has not been pulled
    assert offsets.take_reset("T", "g", 1) == 5
    assert not offsets.has_reset("T", "g")


def test_a_reset_of_an_offline_group_survives_a_restart(world: World) -> None:
    world.offsets.reset("T", "g", {0: 2})
    world.offsets.save_now()
    assert world.again().get("T", "g", 0) == 2


def test_a_topic_or_group_that_goes_takes_its_progress_along(world: World) -> None:
    offsets = world.offsets
    for topic in ("T", "T2"):
        for group in ("g", "g2"):
            offsets.commit(topic, group, 0, 1)
            offsets.pulled_of(topic, group)[0] = 2
    live = offsets.offsets_of("T2", "g")
    offsets.delete_topic("T")
    assert offsets.get("T", "g", 0) is None
    assert offsets.pulled("T", "g", 0) is None
    assert offsets.groups_of("T2") == ["g", "g2"]
    offsets.delete_group("g")
    assert offsets.topics_of("g") == []
    assert offsets.topics_of("g2") == ["T2"]
    live[0] = 9  # whoever held the dict still commits through it
    assert offsets.get("T2", "g", 0) == 9


def test_a_clone_goes_its_own_way(world: World) -> None:
    world.offsets.commit("T", "source", 0, 4)
    world.offsets.clone("T", "source", "target")
    world.offsets.commit("T", "source", 0, 5)
    assert world.offsets.get("T", "target", 0) == 4


def test_looking_leaves_no_trace(world: World) -> None:
    assert world.offsets.get("T", "g", 0) is None
    assert dict(world.offsets.progress("T", "g")) == {}
    assert world.offsets.offsets_of("T", "g") == {}
    assert world.offsets.groups_of("T") == []
    world.offsets.save()
    assert world.writes == 0


def test_who_stands_behind_the_end_of_a_queue_is_brought_back(world: World) -> None:
    for topic, group, queue_id, consume_offset in (
        ("T", "g", 0, 5), ("T", "g", 1, 6), ("T", "h", 0, 4), ("gone", "g", 0, 3),
    ):  # fmt: skip
        world.offsets.commit(topic, group, queue_id, consume_offset)
    world.offsets.save_now()
    again = world.again()
    ends = {("T", 0): 4, ("T", 1): 6}
    assert again.correct(lambda topic, queue_id: ends.get((topic, queue_id), 0)) == 2
    assert again.progress("T", "g") == {0: 4, 1: 6}
    assert again.progress("T", "h") == {0: 4}
    assert again.progress("gone", "g") == {0: 0}
    again.save()
    assert world.again().progress("T", "g") == {0: 4, 1: 6}
