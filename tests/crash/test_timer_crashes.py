"""Timed messages and crashes at every disk operation, in a life with a kill in its middle.

Nothing may be lost, early or stuck. After a kill only what was due in the slot under way may come
again; after a power cut what was delivered since the last checkpoint may.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from ariane.config import StoreConfig
from ariane.disk import CrashMode
from ariane.store import timer_wheel
from tests.unit.store.shelf import config_with
from tests.unit.store.timer_world import TIMED, TimerWorld

VALUES = {name: getattr(TIMED, name) for name in TIMED.__struct_fields__}
COARSE = config_with(**(VALUES | {"timer_window_slots": 9}))
FINE = config_with(
    **(VALUES | {"timer_window_slots": 9, "timer_precision_ms": 100, "flush_interval_ms": 200})
)
SYNCED = config_with(**(VALUES | {"timer_window_slots": 9, "flush_mode": "SYNC_FLUSH"}))


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every turn does little, so that there are many moments to stop at."""
    for name in ("TAKE_COUNT_MAX", "COLLECT_COUNT_MAX", "DELIVER_COUNT_MAX"):
        monkeypatch.setattr(timer_wheel, name, 2)


class Stop(BaseException):
    """The machine stops here."""


def life(world: TimerWorld) -> None:
    """Messages for now, soon and long after; deletions; a kill, and a start after it."""
    precision_ms = world.config.timer_precision_ms
    for i in range(24):
        world.send(1 + i * precision_ms // 3, relative=i % 3 == 0)
    far = world.send(30 * precision_ms)
    world.send(25 * precision_ms, size=3000)
    world.advance(2 * precision_ms)
    world.delete(20)
    world.delete(far)
    world.advance(precision_ms // 2)
    world.crash(CrashMode.KILL)
    for i in range(10):
        world.send(1 + i * precision_ms)
    world.advance(3 * precision_ms)


class StopAfter:
    """Counts what is done, and stops when it is too much."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.done = 0

    def __call__(self, kind: str, path: str) -> None:
        self.done += 1
        if self.done > self.count:
            raise Stop


def run_until(world: TimerWorld, count: int) -> int:
    """Live until disk and wheel have done so many things; how many they did."""
    operation = StopAfter(count)
    world.watch(operation)
    with suppress(Stop):
        life(world)
    world.watch(None)
    return operation.done


def end(world: TimerWorld) -> None:
    """Everything still to come comes, and a clean restart changes nothing."""
    world.advance(15 * world.config.timer_precision_ms)
    world.restart()
    world.advance(40 * world.config.timer_precision_ms)
    clockwork = world.store.timer.clockwork
    assert clockwork is None or (clockwork.lost == 0 and clockwork.ready_count == 0)
    world.store.stop()


def total_operations(config: StoreConfig) -> int:
    return run_until(TimerWorld(config), 1 << 60)


@pytest.mark.parametrize("mode", list(CrashMode))
@pytest.mark.parametrize("config", [COARSE, FINE, SYNCED], ids=["coarse", "fine", "synced"])
def test_every_operation(config: StoreConfig, mode: CrashMode) -> None:
    total = total_operations(config)
    assert total > 100
    for count in range(total):
        world = TimerWorld(config)
        run_until(world, count)
        try:
            world.crash(mode, Random(count))
            end(world)
        except AssertionError as error:
            raise AssertionError(f"stopped after {count} of {total} operations: {error}") from error


@pytest.mark.parametrize("seed", range(30))
def test_power_fails_again_while_starting(seed: int) -> None:
    """The start after a power cut is cut short by another."""
    random = Random(seed)
    world = TimerWorld(random.choice([COARSE, FINE, SYNCED]))
    run_until(world, random.randrange(total_operations(COARSE)))
    for _ in range(4):
        world.look()
        world.doubled |= set(world.delivered) | world.rolled()
        world.disk = world.disk.crash_image(random, CrashMode.MIXED)
        world.disk.on_operation = StopAfter(random.randrange(40))
        with suppress(Stop):
            world.open()
        world.disk.on_operation = None
        world.disk = world.disk.crash_image(random, CrashMode.MIXED)
        world.look_at_restart()
        world.advance(world.config.timer_precision_ms // 2)
    end(world)
