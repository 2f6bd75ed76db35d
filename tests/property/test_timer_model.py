"""Timed messages against the obvious model: a table of numbers and the times they are due.

`TimerWorld` is the model and checks itself: nothing early, nothing missing once it is due, nothing
twice but for what a crash excuses, nothing that was deleted.
"""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.disk import CrashMode
from tests.unit.store.shelf import config_with
from tests.unit.store.timer_world import TIMED, TimerWorld

VALUES = {name: getattr(TIMED, name) for name in TIMED.__struct_fields__}

# Times are in hundredths of a slot, so that one list of actions serves every precision.
SEND = st.tuples(
    st.just("send"),
    st.one_of(st.integers(1, 300), st.sampled_from([99, 100, 101]), st.integers(1, 8_000)),
    st.booleans(),
    st.sampled_from([1, 1, 3, 20]),
)
ACTIONS = st.lists(
    st.one_of(
        SEND,
        SEND,
        st.tuples(st.just("delete"), st.integers(0, 50)),
        st.tuples(st.just("advance"), st.sampled_from([1, 33, 100, 250, 1234])),
        st.tuples(st.just("restart")),
        st.tuples(st.just("crash"), st.sampled_from(list(CrashMode)), st.integers(0, 1000)),
    ),
    min_size=3,
    max_size=25,
)


def act(world: TimerWorld, action: tuple[object, ...]) -> None:
    unit = world.config.timer_precision_ms
    match action:
        case ("send", int(hundredths), bool(relative), int(count)):
            for _ in range(count):
                world.send(max(1, hundredths * unit // 100), relative=relative)
        case ("delete", int(number)) if number < len(world.due):
            world.delete(number)
        case ("advance", int(hundredths)):
            world.advance(hundredths * unit // 100)
        case ("restart",):
            world.restart()
        case ("crash", CrashMode() as mode, int(seed)):
            world.crash(mode, Random(seed))


@settings(max_examples=60)
@given(
    actions=ACTIONS,
    precision_ms=st.sampled_from([100, 1000]),
    window_slots=st.sampled_from([6, 20, 1000]),
    slots=st.sampled_from([64, 250]),
    flush_mode=st.sampled_from(["ASYNC_FLUSH", "SYNC_FLUSH"]),
)
def test_messages_come_once_and_on_time(
    actions: list[tuple[object, ...]],
    precision_ms: int,
    window_slots: int,
    slots: int,
    flush_mode: str,
) -> None:
    changes = {
        "timer_precision_ms": precision_ms,
        "timer_window_slots": window_slots,
        "flush_mode": flush_mode,
    }
    world = TimerWorld(config_with(**(VALUES | changes)), slots=slots)
    for action in actions:
        act(world, action)
    world.advance(81 * precision_ms)
    clockwork = world.store.timer.clockwork
    assert clockwork is None or (clockwork.lost, clockwork.ready_count) == (0, 0)
    world.store.stop()
