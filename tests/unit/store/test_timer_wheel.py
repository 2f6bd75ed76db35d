"""The timer wheel, told the time: when messages come, in what order, and what may hold them up."""

from dataclasses import dataclass, field

import pytest

from ariane.config import StoreConfig
from ariane.errors import DiskFull
from ariane.kernel.log import Log
from ariane.kernel.queue import Queue
from ariane.store.clockwork import Clockwork
from ariane.store.timer_wheel import SLOT_COUNT, slot_of, window_of
from ariane.store.wheel import TimerLog, Wheel
from ariane.topics import TIMER_TOPIC
from tests.unit.store.shelf import config_with, message, read_all
from tests.unit.store.timer_world import TIMED, TimerWorld


def timed(**changes: object) -> StoreConfig:
    values = {name: getattr(TIMED, name) for name in TIMED.__struct_fields__}
    return config_with(**(values | changes))


@pytest.mark.parametrize(
    ("deliver_ms", "precision_ms", "slot_ms"),
    [
        (10_300, 1000, 10_000),
        (10_999, 1000, 10_000),
        (11_000, 1000, 10_000),  # exactly at a slot's time: still of the one before
        (11_001, 1000, 11_000),
        (10_300, 100, 10_200),
        (10_301, 100, 10_300),
    ],
)
def test_a_message_waits_in_the_last_slot_that_begins_before_it(
    deliver_ms: int, precision_ms: int, slot_ms: int
) -> None:
    assert slot_of(deliver_ms, precision_ms) == slot_ms


@pytest.mark.parametrize(
    ("asked", "retention_hours", "window"),
    [
        (172_800, 72, 172_800),
        (172_800, None, 172_800),
        (172_800, 24, 57_600),  # two thirds of what a record is kept for
        (172_800, 0, 60),
        (1, None, 604_740),  # no window at all: as Apache does
        (10_000_000, None, 604_740),
    ],
)
def test_no_message_waits_longer_than_its_record_is_kept(
    asked: int, retention_hours: int | None, window: int
) -> None:
    found = window_of(
        asked, slot_count=SLOT_COUNT, precision_ms=1000, retention_hours=retention_hours
    )
    assert found == window


def test_messages_come_when_they_are_due_to_the_millisecond() -> None:
    world = TimerWorld()
    delays = [1, 2, 250, 999, 1000, 1001, 1500, 2000, 59_000]
    numbers = [world.send(delay, relative=i % 2 == 0) for i, delay in enumerate(delays)]
    start_ms = world.now_ms
    for number, delay in zip(numbers, delays, strict=True):
        world.clock.advance((start_ms + delay - 1 - world.now_ms) / 1000)
        world.turn()
        assert number not in world.delivered
        world.clock.advance(0.001)
        world.turn()
        assert world.delivered[number] == [start_ms + delay]


def test_messages_of_a_slot_come_in_the_order_of_their_times_then_of_their_sending() -> None:
    world = TimerWorld()
    for delay in (900, 300, 300, 901, 1, 300):
        world.send(delay)
    world.clock.advance(2)
    world.turn()
    bodies = sorted(
        (record.log_offset, record.body)
        for queue_id in (0, 1)
        for record in read_all(world.store, "T", queue_id)
    )
    assert [body for _, body in bodies] == [b"4", b"1", b"2", b"5", b"0", b"3"]


def test_the_marks_of_a_delivery_are_apaches() -> None:
    world = TimerWorld()
    world.clock.advance(0.3)
    world.send(1500)
    world.turn()
    world.clock.advance(1.6)
    world.turn()
    (record,) = read_all(world.store, "T", 0)
    base = 1_700_000_000_000
    assert record.properties == {
        "UNIQ_KEY": "u0",
        "TIMER_DELIVER_MS": str(base + 1800),
        "TIMER_OUT_MS": str(base + 1000),
        "REAL_TOPIC": "T",
        "REAL_QID": "0",
        "TIMER_ENQUEUE_MS": str(base),  # the slot in which it was taken in
        "TIMER_DEQUEUE_MS": str(base + 1900),
    }


def test_a_message_taken_in_after_its_slot_says_so() -> None:
    world = TimerWorld()
    world.send(10)
    world.turn()
    world.clock.advance(0.02)
    world.turn()
    world.send(500)
    world.clock.advance(5)
    world.store.timer.clockwork.collect(world.now_ms, 1000)  # leaves the slot before it is taken in
    world.turn()
    late = read_all(world.store, "T", 1)[-1]
    assert late.properties["TIMER_ENQUEUE_MS"] == str(2**63 - 1)


def test_a_message_beyond_the_window_is_stored_anew_on_the_way() -> None:
    world = TimerWorld(timed(timer_window_slots=9))
    world.send(30_000, relative=True)
    world.advance(29_000)
    times = [
        record.properties.get("TIMER_ROLL_TIMES") for record in read_all(world.store, TIMER_TOPIC)
    ]
    assert times == [None, "1", "2", "3"]
    world.advance(1000)
    assert world.delivered[0] == [world.due[0]]  # to the millisecond still


def test_a_message_is_not_rolled_so_late_that_its_slot_is_gone() -> None:
    """With less than a third of the window left after it, it is rolled halfway."""
    world = TimerWorld(timed(timer_window_slots=9))
    world.send(10_000)
    world.turn()
    clockwork = world.store.timer.clockwork
    assert clockwork.count_at(world.now_ms + 4000) == 1
    assert clockwork.count_at(world.now_ms + 9000) == 0


def test_a_deletion_takes_back_a_message_of_its_topic_only() -> None:
    world = TimerWorld()
    kept, taken_back = world.send(5000), world.send(5000)
    world.delete(taken_back)
    world.advance(6000)
    assert kept in world.delivered and taken_back not in world.delivered
    assert world.store.timer.clockwork.deleted == 1


@pytest.mark.parametrize(
    ("key", "is_deleted"),
    [("u0", True), ("T+u0", True), ("Other+u0", False), ("u00", False), ("T+", False)],
)
def test_a_deletion_names_a_key_or_topic_and_key(key: str, is_deleted: bool) -> None:
    world = TimerWorld()
    world.send(2000)
    out = str(slot_of(world.due[0], 1000))
    marks = {"TIMER_OUT_MS": out, "TIMER_DEL_UNIQKEY": key, "REAL_TOPIC": "T", "REAL_QID": "0"}
    world.store.append(message(b"0", TIMER_TOPIC, 0, UNIQ_KEY="d", **marks))
    if is_deleted:
        world.deleted.add(0)
    world.advance(3000)
    assert (0 in world.delivered) is not is_deleted


def test_a_deletion_rolls_along_with_its_message() -> None:
    world = TimerWorld(timed(timer_window_slots=9))
    number = world.send(40_000)
    world.advance(12_000)
    world.delete(number)
    world.advance(30_000)
    assert number not in world.delivered


def test_what_says_nothing_that_can_be_followed_is_passed_over() -> None:
    world = TimerWorld()
    for properties in (
        {},
        {"TIMER_OUT_MS": "soon", "REAL_TOPIC": "T", "REAL_QID": "0"},
        {"TIMER_OUT_MS": "1700000000000", "REAL_QID": "0"},
        {"TIMER_OUT_MS": "1700000000000", "REAL_TOPIC": "T"},
        {"TIMER_OUT_MS": "1700000000000", "REAL_TOPIC": "T", "REAL_QID": "-1"},
        {"TIMER_OUT_MS": "1700000000000", "REAL_TOPIC": "T", "REAL_QID": "99999999999"},
    ):
        world.store.append(message(b"?", TIMER_TOPIC, 0, **properties))
    world.send(100)
    world.advance(1000)
    assert world.delivered == {0: [world.now_ms - 750]}
    assert world.store.timer.clockwork.lost == 6


def test_a_topic_that_cannot_be_is_dropped_and_the_others_come() -> None:
    world = TimerWorld()
    marks = {"TIMER_OUT_MS": str(world.now_ms), "REAL_TOPIC": "../etc", "REAL_QID": "0"}
    world.store.append(message(b"?", TIMER_TOPIC, 0, **marks))
    world.send(100)
    world.advance(1000)
    assert 0 in world.delivered
    assert world.store.timer.clockwork.lost == 1


def test_a_slot_with_more_than_one_turn_can_do_is_delivered_in_turns() -> None:
    world = TimerWorld(timed(segment_bytes=1 << 22, queue_file_bytes=20 * 5000))
    for _ in range(3000):
        world.send(700)
    world.clock.advance(0.7)
    turns = [world.store.timer.turn()]
    while turns[-1].is_more:
        turns.append(world.store.timer.turn())
    counts = [sum(count for count, _ in turn.delivered.values()) for turn in turns]
    assert sum(counts) == 3000 and max(counts) <= 1024
    world.look()


def test_big_bodies_make_short_turns() -> None:
    world = TimerWorld(timed(segment_bytes=1 << 24, message_bytes_max=1 << 20))
    for _ in range(6):
        world.send(100, size=900_000)
    world.clock.advance(0.2)
    turn = world.store.timer.turn()
    assert sum(count for count, _ in turn.delivered.values()) == 2 and turn.is_more


def test_a_clock_set_back_delays_but_nothing_is_early_or_lost() -> None:
    world = TimerWorld()
    world.send(5000)
    world.advance(3000)
    world.clock.step_wall(-10_000)
    world.send(1000)
    world.send(9000)
    world.advance(900)
    assert world.delivered == {}
    world.advance(20_000)
    assert len(world.delivered) == 3


def test_a_clock_set_ahead_brings_what_is_due() -> None:
    world = TimerWorld()
    for delay in range(1000, 20_000, 1000):
        world.send(delay)
    world.turn()
    world.clock.step_wall(3_600_000)
    world.turn()
    assert len(world.delivered) == 19


def test_after_a_long_sleep_messages_of_the_last_turn_come_before_their_slots_are_used() -> None:
    """The wheel has come round: slots still hold what nobody delivered."""
    world = TimerWorld()
    world.send(20_000)
    world.turn()
    world.restart()
    world.clock.advance(64 + 15)  # the very slot again, one turn later
    world.send(5000)
    world.turn()
    assert list(world.delivered) == [0]
    world.advance(6000)
    assert list(world.delivered) == [0, 1]


def test_a_full_disk_holds_messages_up_and_lets_them_go() -> None:
    world = TimerWorld()
    world.send(100)
    world.turn()
    world.clock.advance(1)
    world.disk.plant("reserve", DiskFull("full"))
    turn = world.store.timer.turn()
    assert isinstance(turn.fault, DiskFull) and not turn.is_more
    world.turn()
    assert 0 in world.delivered


def test_one_that_cannot_be_placed_now_does_not_make_others_come_twice() -> None:
    world = TimerWorld()
    for _ in range(40):
        world.send(100)
    world.turn()
    world.clock.advance(1)
    world.disk.plant("reserve", DiskFull("full"), after=1)  # in the middle, between two queues
    while world.store.timer.turn().fault is None:
        pass
    world.look()
    assert 0 < len(world.delivered) < 40
    world.turn()
    assert sorted(world.delivered) == list(range(40))


def test_a_message_larger_than_is_allowed_by_now_is_delivered() -> None:
    world = TimerWorld(timed(message_bytes_max=20_000))
    world.send(1000, size=19_000)
    world.turn()
    world.config = timed(message_bytes_max=1000)
    world.restart()
    world.store.log.record_bytes_max = 5000
    world.advance(2000)
    assert 0 in world.delivered


def test_properties_without_room_for_marks_are_delivered_without() -> None:
    world = TimerWorld(timed(message_bytes_max=40_000))
    marks = {"TIMER_OUT_MS": str(world.now_ms), "REAL_TOPIC": "T", "REAL_QID": "0"}
    world.store.append(message(b"0", TIMER_TOPIC, 0, **marks, pad="x" * 32_680))
    world.due[0] = world.now_ms
    world.advance(1500)
    (record,) = read_all(world.store, "T", 0)
    assert "TIMER_DEQUEUE_MS" not in record.properties and len(record.properties["pad"]) == 32_680


def test_the_count_of_a_slot_is_of_what_waits_in_it() -> None:
    world = TimerWorld()
    first, _, _ = world.send(5000), world.send(5000), world.send(6500)
    world.delete(first)
    world.turn()
    clockwork = world.store.timer.clockwork
    base = world.now_ms
    assert [clockwork.count_at(base + s * 1000) for s in (3, 4, 5, 6)] == [0, 1, 0, 1]
    assert world.store.timer.pending == 2
    world.advance(10_000)
    assert world.store.timer.pending == 0


def test_a_store_without_timed_messages_has_no_timer_files() -> None:
    world = TimerWorld()
    world.store.append(message(b"plain", "Other"))
    world.turn()
    world.restart()
    assert not world.disk.exists("timerwheel") and not world.disk.exists("timerlog")
    assert not world.disk.exists("config/timercheck")


def test_with_the_wheel_turned_off_messages_wait_until_it_is_on() -> None:
    world = TimerWorld(timed(timer_enabled=False))
    world.send(1000)
    world.clock.advance(5)
    world.turn()
    assert world.delivered == {}
    world.config = TIMED
    world.restart()
    world.turn()
    assert 0 in world.delivered


@dataclass
class Kernel:
    """The kernel's parts without any files."""

    log: Log = field(default_factory=lambda: Log(4096, bytes(8)))
    queue: Queue = field(default_factory=lambda: Queue(b"rmq_sys_wheel_timer", 0, 200))
    units: TimerLog = field(default_factory=lambda: TimerLog(1024))


def test_the_kernel_refuses_what_cannot_be() -> None:
    kernel = Kernel()
    wheel = Wheel(bytearray(64 * 32), 64, 1000)
    for window_slots in (1, 64):
        with pytest.raises(ValueError, match="window"):
            Clockwork(
                kernel.log,
                kernel.queue,
                wheel,
                kernel.units,
                window_slots=window_slots,
                read_ms=0,
                next_offset=0,
            )
    with pytest.raises(ValueError, match="2048 bytes"):
        Wheel(bytearray(63 * 32), 64, 1000)
    with pytest.raises(ValueError, match="holds no unit"):
        TimerLog(60)
    clockwork = Clockwork(
        kernel.log, kernel.queue, wheel, kernel.units, window_slots=8, read_ms=0, next_offset=0
    )
    with pytest.raises(IndexError):
        clockwork.drop(True)
    assert clockwork.first_message() is None


def test_units_lie_where_apache_looks_for_them() -> None:
    units = TimerLog(100 << 20)
    units.add(0, bytearray(100 << 20))
    assert units.last_in_file == 104_857_532
    assert units.after(104_857_532) == 104_857_600
    assert units.before(104_857_600) == 104_857_532 == units.before(104_857_584)
    assert units.before(0) == -1
    assert units.place_of(104_857_584) == 104_857_600
