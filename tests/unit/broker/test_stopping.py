"""What a broker that stops writes, and in which order."""

from __future__ import annotations

import asyncio
import errno
from random import Random

import pytest

from ariane.broker.broker import Broker
from ariane.broker.persistence import SavedFile
from ariane.clock import ManualClock, Timers
from ariane.config import BrokerConfig
from ariane.disk import SimulatedDisk
from ariane.testing import EmbeddedBroker
from tests.unit.broker.rig import SMALL_STORE
from tests.unit.store.shelf import message

OFFSETS = "config/consumerOffset.json"


@pytest.mark.parametrize("fails", [False, True])
def test_offsets_are_saved_only_when_what_they_rest_on_is_on_the_platter(fails: bool) -> None:
    disk, clock = SimulatedDisk(), ManualClock()
    broker = Broker(
        BrokerConfig(port=0, vip_port=False),
        SMALL_STORE,
        clock=clock,
        disk=disk,
        random=Random(1),
        timers=Timers(clock),
        has_threads=False,
    )
    lacked: list[int] = []

    def look(kind: str, path: str) -> None:
        store = broker.state.store
        if kind == "write" and path.startswith(OFFSETS):
            lacked.append(store.written - store.flushed)
        if fails and kind == "sync" and path.startswith("commitlog"):
            raise OSError(errno.EIO, "Input/output error", path)

    async def run() -> None:
        await broker.start()
        broker.state.store.append(message(b"a note of what was popped"))
        broker.state.offsets.commit("T", "group", 0, 1)
        disk.before_operation = look
        await broker.stop()

    asyncio.run(run())
    assert lacked == ([] if fails else [0])
    assert disk.exists(OFFSETS) is not fails


@pytest.mark.provokes("a step of stopping failed")
def test_a_file_that_cannot_be_saved_keeps_no_other_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    save_now = SavedFile.save_now

    def unless_groups(self: SavedFile) -> None:
        if "subscriptionGroup" in self.path:
            raise RecursionError("nobody foresaw")
        save_now(self)

    with EmbeddedBroker() as broker:
        broker.call(lambda: broker.broker.state.offsets.commit("orders", "readers", 0, 7))
        with monkeypatch.context() as patch:
            patch.setattr(SavedFile, "save_now", unless_groups)
            broker.restart()
        state = broker.broker.state
        assert broker.call(lambda: state.offsets.get("orders", "readers", 0)) == 7
        assert not broker.call(lambda: state.store.was_killed)
