"""Timers run from the loop: at their time, in their order, and in spite of each other."""

from __future__ import annotations

import asyncio

import pytest

from ariane.clock import ManualClock, SystemClock, Timers
from ariane.remoting.loop_timers import drive
from tests.unit.remoting.peers import soon


async def test_timers_run_in_order() -> None:
    timers = Timers(SystemClock())
    driver = drive(timers, asyncio.get_running_loop())
    seen: list[str] = []
    done = asyncio.Event()
    timers.after(0.03, done.set)
    timers.after(0.02, lambda: seen.append("second"))
    timers.after(0.01, lambda: seen.append("first"))
    await soon(done.wait())
    assert seen == ["first", "second"]
    driver.stop()


async def test_a_timer_set_earlier_than_all_others_wakes_the_loop() -> None:
    timers = Timers(SystemClock())
    driver = drive(timers, asyncio.get_running_loop())
    timers.after(3600.0, lambda: None)
    done = asyncio.Event()
    timers.after(0.01, done.set)
    await soon(done.wait())
    driver.stop()


@pytest.mark.provokes("timer failed")
async def test_a_timer_that_fails_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    timers = Timers(SystemClock())
    driver = drive(timers, asyncio.get_running_loop())
    done = asyncio.Event()

    def fail() -> None:
        raise RuntimeError("a bug")

    timers.after(0.0, fail)
    timers.after(0.001, done.set)
    await soon(done.wait())
    assert "timer failed" in caplog.text
    driver.stop()


async def test_timers_set_by_timers_run_too() -> None:
    timers = Timers(SystemClock())
    driver = drive(timers, asyncio.get_running_loop())
    done = asyncio.Event()
    timers.after(0.001, lambda: timers.after(0.001, done.set) and None)
    await soon(done.wait())
    driver.stop()


async def test_a_stopped_driver_runs_nothing() -> None:
    timers = Timers(SystemClock())
    driver = drive(timers, asyncio.get_running_loop())
    seen: list[str] = []
    timers.after(0.0, lambda: seen.append("timer"))
    driver.stop()
    timers.after(0.0, lambda: seen.append("timer"))
    passed = asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, passed.set)
    await soon(passed.wait())
    assert seen == []


async def test_a_manual_clock_is_not_hurried() -> None:
    clock = ManualClock()
    timers = Timers(clock)
    clock.timers.append(timers)
    driver = drive(timers, asyncio.get_running_loop())
    seen: list[str] = []
    timers.after(5.0, lambda: seen.append("timer"))
    await asyncio.sleep(0)
    assert seen == []
    clock.advance(5.0)
    assert seen == ["timer"]
    driver.stop()
