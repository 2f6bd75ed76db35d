"""The collector: what outlived a long collection is not looked at again."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from ariane.cli.collecting import LONG_S, Collecting


class Slow:
    """A clock by which everything takes a given time."""

    def __init__(self) -> None:
        self.step_s = 0.0
        self._now_s = 0.0

    def wall_ms(self) -> int:
        return 0

    def monotonic_s(self) -> float:
        self._now_s += self.step_s
        return self._now_s


class World:
    """A collector that is listened to."""

    def __init__(self) -> None:
        self.clock = Slow()
        self.frozen = 0
        self.collecting = Collecting(self.clock, self._freeze)

    def _freeze(self) -> None:
        self.frozen += 1


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.collecting.stop()


def test_a_quick_collection_changes_nothing(world: World) -> None:
    gc.collect()
    assert world.frozen == 0


def test_what_outlived_a_long_collection_is_set_aside(world: World) -> None:
    world.clock.step_s = 2 * LONG_S
    gc.collect(1)
    assert world.frozen == 0
    gc.collect()
    assert world.frozen == 1
