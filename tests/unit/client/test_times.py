"""How long: seconds or a timedelta. When: a datetime. Old spellings are taken with a warning."""

import inspect
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import ariane
from ariane import Retry, RetryLater, Start
from ariane.client.times import milliseconds_of, renamed, seconds_of
from ariane.testing import EmbeddedBroker

MOMENT = datetime(2026, 1, 2, tzinfo=UTC)


def test_seconds_and_moments() -> None:
    assert seconds_of(1.5) == seconds_of(timedelta(seconds=1.5)) == 1.5
    assert milliseconds_of(MOMENT) == 1_767_312_000_000
    with pytest.warns(DeprecationWarning, match="give a datetime"):
        assert milliseconds_of(5) == 5


async def test_old_names_of_keywords_are_taken_with_a_warning() -> None:
    @renamed(wait_s="wait")
    def plain(wait: float = 0) -> float:
        return wait

    @renamed(wait_s="wait")
    async def awaits(wait: float = 0) -> float:
        return wait

    old: dict[str, Any] = {"wait_s": 3}
    assert (plain(1), plain(wait=2), await awaits(1)) == (1, 2, 1)
    assert inspect.iscoroutinefunction(awaits)
    with pytest.warns(DeprecationWarning, match="wait_s= is called wait= now"):
        assert plain(**old) == 3
    with pytest.warns(DeprecationWarning, match="wait_s= is called wait= now"):
        assert await awaits(**old) == 3


OLD = {
    "linger": lambda: ariane.Client("127.0.0.1:1", linger_ms=5)._settings.linger == 0.005,  # type: ignore[call-arg]
    "delays": lambda: Retry(delays_s=(1, 2)) == Retry(delays=(1, 2)),  # type: ignore[call-arg]
    "delay": lambda: RetryLater(delay_s=2).delay_s == 2,  # type: ignore[call-arg]
    "start": lambda: Start.at(1_767_312_000_000) == Start.at(MOMENT),  # type: ignore[arg-type]
    "timeout": lambda: (
        ariane.Client("127.0.0.1:1")
        .subscribe("t", group="g", timeout_s=7)  # type: ignore[call-arg]
        .consumer.options.timeout_s
        == 7
    ),
}


@pytest.mark.parametrize("is_understood", OLD.values(), ids=OLD)
def test_old_spellings(is_understood: Any) -> None:
    with pytest.warns(DeprecationWarning, match="next release"):
        assert is_understood()


def test_spans_of_time() -> None:
    second = timedelta(seconds=1)
    assert Retry(delays=(second, 2)).delay_s(0) == Retry(delays=(1,)).delay_s(0) == 1
    assert RetryLater(second).delay_s == 1
    client = ariane.Client("127.0.0.1:1", timeout=second, linger=second)
    assert (client._settings.timeout, client._settings.linger) == (1, 1)
    options = client.subscribe("t", group="g", timeout=second, drain=second).consumer.options
    assert (options.timeout_s, options.drain_s) == (1, 1)


async def test_spans_and_moments_all_the_way(ariane_broker: EmbeddedBroker) -> None:
    second = timedelta(seconds=1)
    async with ariane.Client(ariane_broker.name_server) as client:
        await client.admin.create_topic("orders", write_queue_count=1)
        await client.send("orders", b"x", timeout=5 * second, keys="k")
        consumer = client.simple_consumer("pop", start=Start.FIRST)
        consumer.subscribe("orders")
        (message,) = await consumer.receive(invisible=60 * second, wait=5 * second)
        assert abs(message.stored_at - ariane_broker.now) < 5 * second
        assert message.born_at.tzinfo is UTC
        await message.extend(60 * second)
        await message.nack(delay=second)
        await consumer.close()
        found = await client.admin.find("orders", "k", begin=message.stored_at - second)
        assert len(found) == 1
        assert await client.admin.find("orders", "k", end=message.stored_at - second) == []
        reader = client.pull_consumer()
        (queue,) = await reader.queues("orders")
        assert await reader.offset_at(queue, message.stored_at + second) == 1
        assert await reader.seek_to_time(queue, message.stored_at - second) == 0
        pulled = await reader.pull(queue, wait=second)
        assert [each.body for each in pulled.messages] == [b"x"]
