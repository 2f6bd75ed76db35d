"""Where `Dedup` remembers what was consumed: in this process, in a file, or in Redis.

A key is claimed by one consumer at a time, until it is finished, released, or its claim runs out.
All three steps are atomic; time comes from the caller, but for Redis, which has its own.
"""

from __future__ import annotations

import inspect
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from enum import Enum
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")


class Claim(Enum):
    """What came of asking for a key."""

    NEW = "new"  # yours
    BUSY = "busy"  # somebody else's, for now
    DONE = "done"  # consumed


class Store(Protocol):
    """What `Dedup` needs of a store; each method may return its result or something to await."""

    blocks: bool  # an event loop should not call it on its own thread

    def claim(
        self, key: str, owner: str, *, now_ms: int, until_ms: int
    ) -> Claim | Awaitable[Claim]:
        """Take the key, unless it is taken or done."""
        ...

    def finish(self, key: str, owner: str, *, now_ms: int, until_ms: int) -> bool | Awaitable[bool]:
        """Remember the key as done until then; False when the claim had run out and was lost."""
        ...

    def release(self, key: str, owner: str) -> object:
        """Give the key back."""
        ...


class MemoryStore:
    """Remembers in this process only, the latest `count_max` keys; a restart forgets all."""

    blocks = False

    def __init__(self, count_max: int = 100_000) -> None:
        if count_max < 1:
            raise ValueError(f"count_max={count_max}: at least one key must be remembered")
        self._count_max = count_max
        self._entries: OrderedDict[str, tuple[str | None, int]] = OrderedDict()  # owner, until
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def claim(self, key: str, owner: str, *, now_ms: int, until_ms: int) -> Claim:
        """Take the key, unless it is taken or done."""
        with self._lock:
            holder, expires_ms = self._entries.get(key, (owner, 0))
            if expires_ms > now_ms and holder != owner:
                return Claim.DONE if holder is None else Claim.BUSY
            self._put(key, owner, until_ms)
            return Claim.NEW

    def finish(self, key: str, owner: str, *, now_ms: int, until_ms: int) -> bool:
        """Remember the key as done until then; False when the claim had run out and was lost."""
        with self._lock:
            holder = self._entries.get(key, (owner, 0))[0]
            if holder != owner:
                return False
            self._put(key, None, until_ms)
            return True

    def release(self, key: str, owner: str) -> None:
        """Give the key back."""
        with self._lock:
            if self._entries.get(key, (None, 0))[0] == owner:
                del self._entries[key]

    def _put(self, key: str, owner: str | None, until_ms: int) -> None:
        self._entries.pop(key, None)
        self._entries[key] = (owner, until_ms)
        while len(self._entries) > self._count_max:
            self._entries.popitem(last=False)


class SqliteStore:
    """Remembers in a file, for all processes of one machine that use it; survives restarts."""

    blocks = True
    _PRUNE_EVERY: Final = 1_000  # claims between two clean-ups of what has expired

    def __init__(self, path: str | Path, *, timeout_s: float = 5.0) -> None:
        self._lock = threading.Lock()
        self._claim_count = 0
        self._database = sqlite3.connect(
            path, timeout=timeout_s, check_same_thread=False, isolation_level=None
        )
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS consumed"
            " (key TEXT PRIMARY KEY, owner TEXT, until_ms INTEGER NOT NULL) WITHOUT ROWID"
        )

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def claim(self, key: str, owner: str, *, now_ms: int, until_ms: int) -> Claim:
        """Take the key, unless it is taken or done."""
        with self._lock:
            self._claim_count += 1
            if self._claim_count % self._PRUNE_EVERY == 1:
                self._database.execute("DELETE FROM consumed WHERE until_ms <= ?", (now_ms,))
            taken = self._database.execute(
                "INSERT INTO consumed VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE"
                " SET owner = excluded.owner, until_ms = excluded.until_ms"
                " WHERE until_ms <= ? OR owner = excluded.owner",
                (key, owner, until_ms, now_ms),
            )
            if taken.rowcount:
                return Claim.NEW
            row = self._database.execute(
                "SELECT owner FROM consumed WHERE key = ?", (key,)
            ).fetchone()
        return Claim.DONE if row is not None and row[0] is None else Claim.BUSY

    def finish(self, key: str, owner: str, *, now_ms: int, until_ms: int) -> bool:
        """Remember the key as done until then; False when the claim had run out and was lost."""
        with self._lock:
            done = self._database.execute(
                "INSERT INTO consumed VALUES (?, NULL, ?) ON CONFLICT (key) DO UPDATE"
                " SET owner = NULL, until_ms = excluded.until_ms WHERE owner = ?",
                (key, until_ms, owner),
            )
        return done.rowcount > 0

    def release(self, key: str, owner: str) -> None:
        """Give the key back."""
        with self._lock:
            self._database.execute("DELETE FROM consumed WHERE key = ? AND owner = ?", (key, owner))


_DONE: Final = "done"
_CLAIM: Final = f"""
local held = redis.call('GET', KEYS[1])
if held == '{_DONE}' then return 'done' end
if held and held ~= ARGV[1] then return 'busy' end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 'new'
"""
_FINISH: Final = f"""
local held = redis.call('GET', KEYS[1])
if held and held ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], '{_DONE}', 'PX', ARGV[2])
return 1
"""
_RELEASE: Final = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""


class RedisStore:
    """Remembers in Redis, for all machines; as safe as that Redis is.

    Takes a client of the `redis` package: `redis.Redis`, or `redis.asyncio.Redis` for handlers that
    await. Keys expire by Redis's own clock.
    """

    def __init__(self, client: Any, *, prefix: str = "ariane:consumed:") -> None:
        self._client = client
        self._prefix = prefix
        self.blocks = not inspect.iscoroutinefunction(getattr(client, "execute_command", None))

    def claim(
        self, key: str, owner: str, *, now_ms: int, until_ms: int
    ) -> Claim | Awaitable[Claim]:
        """Take the key, unless it is taken or done."""
        return self._ask(_claim_of, _CLAIM, key, owner, until_ms - now_ms)

    def finish(self, key: str, owner: str, *, now_ms: int, until_ms: int) -> bool | Awaitable[bool]:
        """Remember the key as done until then; False when the claim had run out and was lost."""
        return self._ask(bool, _FINISH, key, owner, until_ms - now_ms)

    def release(self, key: str, owner: str) -> object:
        """Give the key back."""
        return self._run(_RELEASE, key, owner)

    def _ask(
        self, meaning: Callable[[Any], T], script: str, key: str, *arguments: object
    ) -> T | Awaitable[T]:
        """What Redis's answer means, now or once it is there."""
        if self.blocks:
            return meaning(self._run(script, key, *arguments))

        async def awaited() -> T:  # asks only then: who cannot await leaves nothing behind
            return meaning(await self._run(script, key, *arguments))

        return awaited()

    def _run(self, script: str, key: str, *arguments: object) -> Any:
        return self._client.eval(script, 1, self._prefix + key, *arguments)


def _claim_of(answer: bytes | str) -> Claim:
    return Claim(answer.decode() if isinstance(answer, bytes) else answer)
