"""The timer's files: Apache's bytes, and what a start makes of missing or damaged ones."""

import logging
import struct

import pytest

from ariane.config import StoreConfig
from ariane.disk import CrashMode
from ariane.store.timer_check import Progress, TimerCheck, TimerCheckFile
from ariane.topics import TIMER_TOPIC
from tests.unit.store.shelf import config_with, message, read_all
from tests.unit.store.timer_world import SLOTS, TIMED, TimerWorld

UNIT = struct.Struct(">iqiqiqiiq")
SLOT = struct.Struct(">qqqii")
BASE_MS = 1_700_000_000_000


def timed(**changes: object) -> StoreConfig:
    values = {name: getattr(TIMED, name) for name in TIMED.__struct_fields__}
    return config_with(**(values | changes))


def units_of(world: TimerWorld) -> list[tuple[int, ...]]:
    found = []
    for name, _ in world.disk.names("timerlog"):
        data = world.disk.read(f"timerlog/{name}")
        found += [UNIT.unpack_from(data, at) for at in range(0, len(data) - 68 + 1, 52)]
    return [unit for unit in found if unit[0]]


def slots_of(world: TimerWorld) -> dict[int, tuple[int, ...]]:
    data = world.disk.read("timerwheel")
    slots = [SLOT.unpack_from(data, at) for at in range(0, len(data), 32)]
    return {i: slot for i, slot in enumerate(slots) if any(slot)}


def test_units_and_slots_have_apaches_layout() -> None:
    world = TimerWorld(timed(timer_window_slots=20))
    first = world.send(6300)
    world.send(2000)
    world.send(3000)
    world.send(2900)
    world.send(25_000)
    world.delete(first)
    world.turn()
    records = read_all(world.store, TIMER_TOPIC)
    where = [(record.log_offset, record.size, 84, 0) for record in records]
    assert units_of(world) == [
        (52, -1, 1, BASE_MS, 6000, *where[0]),
        (52, -1, 1, BASE_MS, 1000, *where[1]),
        (52, -1, 1, BASE_MS, 2000, *where[2]),
        (52, 104, 1, BASE_MS, 2000, *where[3]),
        (52, -1, 3, BASE_MS, 10_000, *where[4]),  # to be rolled, halfway through the window
        (52, 0, 5, BASE_MS, 6000, *where[5]),  # a deletion
    ]
    base = BASE_MS // 1000
    assert slots_of(world) == {
        (base + 1) % SLOTS: (base + 1, 52, 52, 1, 0),
        (base + 2) % SLOTS: (base + 2, 104, 156, 2, 0),
        (base + 6) % SLOTS: (base + 6, 0, 260, 0, 0),
        (base + 10) % SLOTS: (base + 10, 208, 208, 1, 0),
    }


def test_a_full_file_ends_with_a_blank() -> None:
    world = TimerWorld()
    for _ in range(20):
        world.send(5000)
    world.turn()
    data = world.disk.read("timerlog/00000000000000000000")
    assert struct.unpack_from(">iqI", data, 19 * 52) == (36, 0, 0xCBD43194)
    second = world.disk.read("timerlog/00000000000000001024")
    assert UNIT.unpack_from(second)[:2] == (52, 18 * 52)


def test_the_check_says_what_is_synced() -> None:
    world = TimerWorld()
    world.send(1500)
    world.send(9000)
    world.advance(4000)
    world.store.stop()
    numbers = struct.unpack_from(">7q", world.disk.read("config/timercheck"))
    assert numbers[:5] == (BASE_MS + 5000, 104, 2, 2, 0)
    assert numbers[6] > 1
    assert len(world.disk.read("config/timercheck")) == 4096


@pytest.mark.parametrize(("delays", "read_ms"), [((100, 200), 1000), ((100, 900), 0)])
def test_a_clean_stop_leaves_a_slot_that_has_nothing_left(
    delays: tuple[int, ...], read_ms: int
) -> None:
    """Apache's broker cannot tell which messages of a slot were delivered."""
    world = TimerWorld()
    for delay in delays:
        world.send(delay)
    world.advance(500)
    world.restart()
    assert world.store.timer.check.read_ms == BASE_MS + read_ms
    number = world.send(100)  # for the slot that was left: it is late, and not lost
    world.advance(99)
    assert number not in world.delivered
    world.crash(CrashMode.KILL)
    world.advance(1)
    assert number in world.delivered
    world.advance(1000)
    assert len(world.delivered) == 3


def test_an_idle_wheel_writes_nothing() -> None:
    world = TimerWorld()
    world.send(500)
    world.advance(5000)
    syncs: list[str] = []
    world.disk.on_operation = lambda kind, path: syncs.append(path) if kind == "sync" else None
    world.advance(20_000)
    assert not [path for path in syncs if path.startswith(("timer", "config/timer"))]


def test_the_numbers_wait_for_the_log_to_be_flushed() -> None:
    """A slot that counts as delivered is on the platter with its deliveries."""
    world = TimerWorld(timed(flush_interval_ms=60_000))
    world.send(500)
    world.advance(3000)
    assert world.store.timer.check.read_ms > BASE_MS
    assert world.store.flushed >= read_all(world.store, "T", 0)[0].log_offset
    world.crash(CrashMode.DROP)
    world.advance(1000)
    assert 0 in world.delivered


def test_progress_counts_only_with_its_numbers() -> None:
    world = TimerWorld()
    world.send(500)
    world.advance(3000)
    file = TimerCheckFile(world.disk)
    check, progress = file.load()
    assert check is not None and progress is not None and progress.queue_offset == 1
    file.open()
    file.write(TimerCheck(read_ms=5), Progress(1000, 1, 2, 3, 4))
    assert TimerCheckFile(world.disk).load() == (TimerCheck(read_ms=5), Progress(1000, 1, 2, 3, 4))
    with_other_numbers = bytearray(world.disk.read("config/timercheck"))
    with_other_numbers[7] = 6  # as Apache would: nothing behind its own numbers changes
    world.disk.write("config/timercheck", bytes(with_other_numbers))
    assert TimerCheckFile(world.disk).load() == (TimerCheck(read_ms=6), None)
    world.disk.write("config/timercheck", b"short")
    assert TimerCheckFile(world.disk).load() == (None, None)


@pytest.mark.parametrize("ending", ["stop", "kill"])
@pytest.mark.parametrize("missing", ["timerwheel", "timerlog", "config/timercheck", "all"])
def test_missing_files_are_made_anew(missing: str, ending: str) -> None:
    world = TimerWorld()
    for delay in (300, 1500, 4000, 9000, 45_000):
        world.send(delay)
    world.delete(2)
    world.advance(2500)
    assert sorted(world.delivered) == [0, 1]
    if ending == "stop":
        world.store.stop()
    else:
        world.disk = world.disk.crash_image(None, CrashMode.KILL)  # type: ignore[arg-type]
    for path in ("timerwheel", "timerlog", "config/timercheck"):
        if missing in (path, "all"):
            world.disk.remove(path)
            world.disk.remove_tree(path)
    if missing in ("config/timercheck", "all"):
        world.doubled |= {0, 1}  # nobody can know that they were delivered
    world.look_at_restart()
    world.advance(10_000)
    assert sorted(world.delivered) == [0, 1, 3]
    world.advance(40_000)
    assert sorted(world.delivered) == [0, 1, 3, 4]
    world.restart()


def test_a_store_without_timer_files_whose_topic_has_messages() -> None:
    """As a backup of log and queues leaves one: what is due comes, the rest waits."""
    world = TimerWorld(timed(timer_enabled=False))
    for delay in (1000, 2000, 3000, 30_000):
        world.send(delay)
    world.clock.advance(2.5)
    world.config = TIMED
    world.restart()
    world.turn()
    assert sorted(world.delivered) == [0, 1]
    world.advance(40_000)
    assert sorted(world.delivered) == [0, 1, 2, 3]


@pytest.mark.parametrize(("before_ms", "after_ms"), [(1000, 100), (100, 1000), (1000, 200)])
def test_another_precision_makes_the_wheel_anew(
    before_ms: int, after_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    world = TimerWorld(timed(timer_precision_ms=before_ms), slots=600)
    numbers = [world.send(delay, relative=delay % 2 == 0) for delay in range(150, 20_000, 333)]
    world.advance(1000)
    world.store.stop()
    world.config = timed(timer_precision_ms=after_ms)
    with caplog.at_level(logging.WARNING):
        world.look_at_restart()
    assert f"its precision was {before_ms} ms" in caplog.text
    world.advance(21_000)
    assert sorted(world.delivered) == numbers


@pytest.mark.parametrize("size", [0, 32, 4096])
def test_a_wheel_of_another_length_is_made_anew(size: int) -> None:
    world = TimerWorld()
    world.send(5000)
    world.advance(1000)
    world.store.stop()
    world.disk.write("timerwheel", bytes(size))
    world.look_at_restart()
    world.advance(5000)
    assert 0 in world.delivered


def test_a_damaged_timer_log_is_made_anew() -> None:
    world = TimerWorld()
    for delay in (5000, 6000, 7000):
        world.send(delay)
    world.advance(1000)
    world.store.stop()
    path = "timerlog/00000000000000000000"
    data = bytearray(world.disk.read(path))
    data[52:104] = bytes(52)
    world.disk.write(path, bytes(data))
    world.look_at_restart()
    world.advance(8000)
    assert sorted(world.delivered) == [0, 1, 2]


def test_a_log_cut_short_takes_its_units_along() -> None:
    """Units beyond a truncated log stay stuck in Apache's (apache/rocketmq 10668)."""
    world = TimerWorld()
    world.send(5000)
    kept_end = world.store.written
    for delay in (6000, 7000, 8000):
        world.send(delay)
    world.advance(1500)
    world.store.stop()
    data = bytearray(world.disk.read("commitlog/00000000000000000000"))
    data[kept_end:] = bytes(len(data) - kept_end)
    world.disk.write("commitlog/00000000000000000000", bytes(data))
    world.disk.write("abort", b"1")
    world.disk.remove("checkpoint")
    world.look_at_restart()
    assert world.store.timer.pending == 1
    assert len(units_of(world)) == 1
    number = world.send(2000)
    world.advance(10_000)
    assert sorted(world.delivered) == [0, number]


def test_a_failed_sync_makes_the_store_read_only_and_the_files_anew() -> None:
    world = TimerWorld()
    world.send(1000)
    world.send(10_000)
    world.turn()
    world.clock.advance(1.1)
    world.turn()
    world.disk.on_operation = lambda kind, path: None
    world.store.flush()
    world.disk.plant("sync", OSError("I/O error"))
    world.store.timer.checkpoint()
    assert "timer wheel" in str(world.store.read_only_reason)
    world.disk.heal()
    world.doubled.add(0)
    world.store.stop()
    world.look_at_restart()
    world.advance(12_000)
    assert sorted(world.delivered) == [0, 1]


def test_old_files_go_with_the_log_and_only_then() -> None:
    world = TimerWorld(timed(segment_bytes=8192, retention_hours=1, delete_hours="00"))
    for _ in range(60):
        world.send(2000)
    world.advance(4000)
    count = len(world.disk.names("timerlog"))
    world.store.timer.clean()
    assert len(world.disk.names("timerlog")) == count
    world.clock.advance(3 * 3600)
    world.store.append(message(b"0", "Other"))
    world.store.checkpoint()
    while world.store.clean(is_asked=True):
        pass
    pending = world.send(5000)
    world.turn()
    world.store.timer.checkpoint()
    world.store.timer.clean()
    names = [name for name, _ in world.disk.names("timerlog")]
    assert len(names) < count and names[-1] > "0" * 20
    world.store.stop()
    world.open()
    world.advance(6000)
    assert world.delivered[pending] == [world.due[pending]]


def test_every_page_written_has_blocks() -> None:
    world = TimerWorld(slots=8192)
    for i in range(300):
        world.send(1 + i * 900)
    world.advance(3000)
    assert world.disk.unreserved_writes() == []
    world.crash(CrashMode.KILL)
    for i in range(50):
        world.send(1 + i * 900)
    world.advance(3000)
    assert world.disk.unreserved_writes() == []
