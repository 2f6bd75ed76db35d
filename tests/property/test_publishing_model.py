"""Several brokers and a driver that dies: whatever ran again, every row is published once.

A batch that is run again spreads its rows over the brokers in another way, which is what makes the
plan that was decided first the only one that may count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.codes import RequestCode, ResponseCode
from ariane.errors import ClientError, ConnectionLost, RequestFailed
from ariane.protocol.command import Command
from ariane.protocol.headers import Header, encode_header
from ariane.spark.parts import Batch, StagedChunk
from ariane.spark.publishing import discard, plan_of, publish
from tests.unit.broker.rig import Peer
from tests.unit.broker.staging.world import QUERY, StagingWorld

T = TypeVar("T")

NAMES = ("broker-a", "broker-b", "broker-c")


class DriverDied(Exception):
    """The driver was killed."""


class Brokers:
    """What `publish` talks to: brokers in memory, and a driver that dies at a given request."""

    def __init__(self) -> None:
        self.worlds = {name: StagingWorld(name=name) for name in NAMES}
        self.away: set[str] = set()
        self.dies_at: float = -1.0  # the request it dies at; after it was carried out at a half
        self._asked = 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        self._asked = 0
        return asyncio.run(work)

    async def persist(self, work: Callable[[], Awaitable[T]], timeout_s: float) -> T:
        return await work()

    async def ask(
        self, broker: str, code: RequestCode, header: Header, body: bytes = b""
    ) -> Command:
        number, self._asked = self._asked, self._asked + 1
        if self.dies_at >= 0 and number >= self.dies_at:
            raise DriverDied
        if broker in self.away:
            raise ConnectionLost(f"{broker} is away")
        answer = self._carry_out(self.worlds[broker], code, header, body)
        if number == int(self.dies_at):
            raise DriverDied
        if answer.code != ResponseCode.SUCCESS:
            raise RequestFailed.of(answer.code, answer.remark or "")
        return answer

    @staticmethod
    def _carry_out(world: StagingWorld, code: RequestCode, header: Header, body: bytes) -> Command:
        peer = Peer()
        answer = world.rig.call(code, dict(encode_header(header)), body, peer=peer)
        if answer is None:
            world.clock.advance(1)
            (answer,) = peer.sent
        return answer

    def stage(
        self, batch: int, rows: list[str], spread: list[int], attempt: int
    ) -> list[StagedChunk]:
        """Stage rows, two to a chunk, each chunk on the broker that `spread` says."""
        sequences = dict.fromkeys(NAMES, 0)
        chunks = []
        for number, first in enumerate(range(0, len(rows), 2)):
            broker = NAMES[spread[number % len(spread)]]
            reference = self.worlds[broker].chunk(
                rows[first : first + 2],
                batchId=batch,
                attempt=attempt,
                sequence=sequences[broker],
            )
            sequences[broker] += 1
            chunks.append(
                StagedChunk(broker, reference.offset, reference.row_count, reference.crc32)
            )
        return chunks

    def rows(self) -> list[str]:
        return sorted(row for world in self.worlds.values() for row in world.rows())


SPREAD = st.lists(st.integers(0, len(NAMES) - 1), min_size=1, max_size=5)
DEATH = st.tuples(SPREAD, st.integers(0, 16).map(lambda halves: halves / 2), st.integers(-1, 2))


@settings(max_examples=80)
@given(
    batches=st.lists(
        st.tuples(st.integers(1, 9), st.lists(DEATH, max_size=3), SPREAD), min_size=1, max_size=3
    )
)
def test_a_driver_that_dies_at_any_request_neither_loses_nor_doubles_a_row(
    batches: list[tuple[int, list[tuple[list[int], float, int]], list[int]]],
) -> None:
    brokers = Brokers()
    written: list[str] = []
    for number, (count, deaths, spread) in enumerate(batches):
        rows = [f"{number}-{row}" for row in range(count)]
        batch = Batch(QUERY, number)
        for attempt, (one_spread, at, killed) in enumerate(deaths):
            chunks = brokers.stage(number, rows, one_spread, attempt)
            brokers.dies_at = at
            with suppress(DriverDied):
                publish(brokers, batch, plan_of([chunks]), NAMES, 1.0)  # type: ignore[arg-type]
            brokers.dies_at = -1.0
            if killed >= 0:
                brokers.worlds[NAMES[killed]].kill()
        chunks = brokers.stage(number, rows, spread, attempt=9)
        publish(brokers, batch, plan_of([chunks]), NAMES, 1.0)  # type: ignore[arg-type]
        written += rows
        assert brokers.rows() == sorted(written)


def test_a_broker_that_is_away_holds_up_a_batch_it_may_have_decided() -> None:
    brokers = Brokers()
    batch = Batch(QUERY, 0)
    chunks = brokers.stage(0, ["a", "b", "c", "d"], [0, 1], attempt=0)
    brokers.dies_at = 3.5  # enlisted on all, decided and published on the first
    with pytest.raises(DriverDied):
        publish(brokers, batch, plan_of([chunks]), NAMES, 1.0)  # type: ignore[arg-type]
    assert brokers.rows() == ["a", "b"]
    brokers.dies_at = -1.0
    brokers.away = {"broker-a"}
    again = brokers.stage(0, ["a", "b", "c", "d"], [1], attempt=1)
    with pytest.raises(ClientError, match="broker-a is away"):
        publish(brokers, batch, plan_of([again]), NAMES, 1.0)  # type: ignore[arg-type]
    brokers.away = {"broker-c"}  # which has nothing to do with it
    publish(brokers, batch, plan_of([again]), NAMES, 1.0)  # type: ignore[arg-type]
    assert brokers.rows() == ["a", "b", "c", "d"]


def test_a_new_broker_that_comes_first_goes_on_with_what_another_decided() -> None:
    brokers = Brokers()
    batch = Batch(QUERY, 0)
    chunks = brokers.stage(0, ["a", "b", "c", "d"], [1, 2], attempt=0)
    brokers.dies_at = 2.5  # enlisted on both, decided and published on the first of them
    with pytest.raises(DriverDied):
        publish(brokers, batch, plan_of([chunks]), NAMES[1:], 1.0)  # type: ignore[arg-type]
    assert brokers.rows() == ["a", "b"]
    brokers.dies_at = -1.0
    again = brokers.stage(0, ["a", "b", "c", "d"], [0], attempt=1)
    publish(brokers, batch, plan_of([again]), NAMES, 1.0)  # type: ignore[arg-type]
    assert brokers.rows() == ["a", "b", "c", "d"], "one plan, whoever is the first by now"


def test_a_discarded_job_stays_unpublished() -> None:
    brokers = Brokers()
    batch = Batch(QUERY, 0)
    plan = plan_of([brokers.stage(0, ["a", "b", "c", "d"], [1, 2], attempt=0)])
    discard(brokers, batch, plan, NAMES, 1.0)  # type: ignore[arg-type]
    with pytest.raises(RequestFailed, match="was discarded"):
        publish(brokers, batch, plan, NAMES, 1.0)  # type: ignore[arg-type]
    assert brokers.rows() == []
