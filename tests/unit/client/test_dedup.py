"""Consuming once: the same promises for every store, and what each of them cannot promise."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ariane.client.dedup import Dedup, InProgress, key_of
from ariane.client.dedup_stores import Claim, MemoryStore, RedisStore, SqliteStore, Store
from ariane.clock import ManualClock
from ariane.errors import ClientError


class FakeRedis:
    """As much of Redis as the scripts use, on the test's clock."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._values: dict[str, tuple[str, int]] = {}

    def execute_command(self) -> None: ...

    def eval(self, script: str, count: int, key: str, *arguments: object) -> bytes | int:
        assert count == 1
        value, until_ms = self._values.get(key, (None, 0))
        held = value if until_ms > self._clock.wall_ms() else None
        owner = str(arguments[0])
        if "DEL" in script:
            return int(held == owner and bool(self._values.pop(key)))
        assert isinstance(arguments[1], int)
        until_ms = self._clock.wall_ms() + arguments[1]
        if "return 'new'" in script:
            if held == "done":
                return b"done"
            if held and held != owner:
                return b"busy"
            self._values[key] = (owner, until_ms)
            return b"new"
        if held and held != owner:
            return 0
        self._values[key] = ("done", until_ms)
        return 1


class FakeAsyncRedis(FakeRedis):
    async def execute_command(self) -> None: ...  # type: ignore[override]

    async def eval(self, *arguments: Any) -> bytes | int:  # type: ignore[override]
        await asyncio.sleep(0)
        return super().eval(*arguments)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite", "redis", "redis.asyncio"])
def store(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
    elif request.param == "sqlite":
        sqlite = SqliteStore(tmp_path / "seen.db")
        yield sqlite
        sqlite.close()
    else:
        kind = FakeRedis if request.param == "redis" else FakeAsyncRedis
        yield RedisStore(kind(clock))


def message(key: str = "42", **changes: Any) -> Any:
    fields = {"topic": "orders", "keys": [key], "message_id": "ID", "properties": {}, **changes}
    return SimpleNamespace(**fields)


async def test_a_message_is_consumed_once(store: Store, clock: ManualClock) -> None:
    dedup = Dedup(store, group="g", clock=clock)
    calls: list[str] = []

    @dedup
    async def handle(message: Any) -> None:
        calls.append(message.keys[0])

    for key in ("1", "2", "1", "1", "2"):
        await handle(message(key))
    assert calls == ["1", "2"]
    await Dedup(store, group="another", clock=clock)(handle.__wrapped__)(message("1"))  # type: ignore[attr-defined]
    assert calls == ["1", "2", "1"]


async def test_one_that_failed_is_tried_again(store: Store, clock: ManualClock) -> None:
    dedup = Dedup(store, clock=clock)
    with pytest.raises(KeyError):
        async with dedup.once(message()) as is_first:
            assert is_first
            raise KeyError
    async with dedup.once(message()) as is_first:
        assert is_first
    async with dedup.once(message()) as is_first:
        assert not is_first


async def test_one_in_hand_is_left_to_whoever_has_it(store: Store, clock: ManualClock) -> None:
    dedup = Dedup(store, lease=60, clock=clock)
    async with dedup.once(message()) as is_first:
        assert is_first
        with pytest.raises(InProgress):
            async with dedup.once(message()):
                pytest.fail("two have it in hand")


async def test_a_claim_runs_out_and_whoever_was_late_hears_of_it(
    store: Store, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    dedup = Dedup(store, lease=60, clock=clock)
    async with dedup.once(message()):
        clock.advance(60)
        async with dedup.once(message()) as is_first:
            assert is_first
    assert "longer than its lease" in caplog.text
    async with dedup.once(message()) as is_first:
        assert not is_first


async def test_what_was_consumed_is_forgotten_in_the_end(store: Store, clock: ManualClock) -> None:
    dedup = Dedup(store, keep=3600, clock=clock)
    for waits_s, expected in ((0, True), (3599, False), (1, True)):
        clock.advance(waits_s)
        async with dedup.once(message()) as is_first:
            assert is_first == expected


def test_code_that_blocks_is_served_too(store: Store, clock: ManualClock) -> None:
    dedup = Dedup(store, clock=clock)
    calls: list[object] = []

    @dedup
    def handle(model: object, message: Any) -> None:
        calls.append(model)

    if isinstance(store, RedisStore) and not store.blocks:
        with pytest.raises(ClientError, match="awaits"):
            handle("a", message())
        return
    handle("a", message())
    handle("b", message())
    with pytest.raises(ZeroDivisionError), dedup.once_blocking(message("2")):
        _ = 1 / 0
    with dedup.once_blocking(message("2")) as is_first:
        assert is_first
    assert calls == ["a"]


def test_many_threads_agree_on_one(store: Store, clock: ManualClock) -> None:
    if not (isinstance(store, MemoryStore) or (store.blocks and isinstance(store, SqliteStore))):
        pytest.skip("real concurrency only")
    dedup = Dedup(store, clock=clock)
    firsts: list[bool] = []
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        for number in range(20):
            try:
                with dedup.once_blocking(message(str(number))) as is_first:
                    firsts.append(is_first)
            except InProgress:
                continue

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(firsts) == 20


def test_a_file_is_shared_and_survives(clock: ManualClock, tmp_path: Path) -> None:
    first, second = SqliteStore(tmp_path / "seen.db"), SqliteStore(tmp_path / "seen.db")
    with Dedup(first, clock=clock).once_blocking(message()) as is_first:
        assert is_first
        with pytest.raises(InProgress), Dedup(second, clock=clock).once_blocking(message()):
            pass
    first.close()
    second.close()
    third = SqliteStore(tmp_path / "seen.db")
    with Dedup(third, clock=clock).once_blocking(message()) as is_first:
        assert not is_first
    third.close()


def test_what_has_expired_does_not_fill_the_file(clock: ManualClock, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "seen.db")
    for number in range(2_500):
        now_ms = number * 10
        assert store.claim(f"{number}", "me", now_ms=now_ms, until_ms=now_ms + 5) is Claim.NEW
    rows = store._database.execute("SELECT count(*) FROM consumed").fetchone()[0]
    assert rows <= 1_000
    store.close()


def test_memory_is_bounded_and_forgets_the_oldest(clock: ManualClock) -> None:
    store = MemoryStore(count_max=3)
    dedup = Dedup(store, clock=clock)
    for key in "1234":
        with dedup.once_blocking(message(key)) as is_first:
            assert is_first
    assert len(store) == 3
    with dedup.once_blocking(message("1")) as is_first:
        assert is_first  # it was forgotten
    with dedup.once_blocking(message("4")) as is_first:
        assert not is_first
    with pytest.raises(ValueError, match="at least one"):
        MemoryStore(0)


KEYS = {
    "the first key": (message("k", keys=["a", "b"]), "orders:a"),
    "without keys the id": (message(keys=[]), "orders:ID"),
    "a retried one": (
        message("k", topic="%RETRY%g", properties={"RETRY_TOPIC": "orders"}),
        "orders:k",
    ),
}


@pytest.mark.parametrize(("sent", "key"), KEYS.values(), ids=KEYS)
def test_keys(sent: Any, key: str) -> None:
    assert key_of(sent) == key


def test_times_must_be_times() -> None:
    with pytest.raises(ClientError, match="more than 0"):
        Dedup(MemoryStore(), lease=0)
