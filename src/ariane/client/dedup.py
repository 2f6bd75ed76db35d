"""Consuming a message once, though it may be delivered again.

RocketMQ delivers at least once: a message comes again when its producer sent it twice, when a
consumer died before it said that it was done, and when queues move between consumers. `Dedup`
remembers which messages were consumed, by their key, and skips those that come again.

What it promises: while the store remembers a key, no handler is begun for it after one has ended
well, and no two handlers have it in hand at once, as long as neither takes longer than the lease.

What it cannot promise: exactly once. A process that dies after its handler's effect and before the
key is marked as done leaves the claim to run out, and the message is consumed again. Nor does it
know more than its store: `MemoryStore` forgets with the process and sees no other process,
`SqliteStore` sees one machine, `RedisStore` loses what Redis loses. Where that is not enough, make
the effect and the mark one transaction: a unique key in the database that the handler writes to.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from random import Random, SystemRandom  # noqa: TID251 - names for claims; tests may bring their own
from typing import Any, Final, Protocol, TypeVar, cast

from ariane.client.dedup_stores import Claim, MemoryStore, RedisStore, SqliteStore, Store
from ariane.client.delivery import is_async
from ariane.client.retrying import RetryLater
from ariane.client.times import Duration, seconds_of
from ariane.clock import Clock, SystemClock
from ariane.errors import ClientError, InvalidArgument
from ariane.protocol.properties import RETRY_TOPIC

__all__ = ["Claim", "Dedup", "InProgress", "MemoryStore", "RedisStore", "SqliteStore", "key_of"]

KEEP: Final = timedelta(days=3)  # as long as brokers keep messages, by default
LEASE: Final = timedelta(minutes=5)

log = logging.getLogger("ariane.client")

T = TypeVar("T")
H = TypeVar("H", bound=Callable[..., Any])


class Keyed(Protocol):
    """What `Dedup` needs of a message."""

    @property
    def topic(self) -> str:
        """Where it was sent."""
        ...

    @property
    def keys(self) -> Sequence[str]:
        """The keys its producer gave it."""
        ...

    @property
    def message_id(self) -> str:
        """The id of the send; the same when it is delivered again."""
        ...

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties."""
        ...


class InProgress(RetryLater):
    """Another consumer has the message in hand; it is to be delivered again later."""


def key_of(message: Keyed) -> str:
    """The message's first key within its topic; of one without keys, its id.

    An id tells apart what was sent apart: an application that sends the same thing twice gives it
    two ids, and only a key of its own shows that it is the same.
    """
    topic = message.properties.get(RETRY_TOPIC) or message.topic
    return f"{topic}:{message.keys[0] if message.keys else message.message_id}"


class Dedup:
    """Skips messages that were consumed before.

    dedup = Dedup(SqliteStore("billing.db"), group="billing")

    @client.consumer("orders", group="billing")
    @dedup
    async def bill(message): ...
    """

    def __init__(
        self,
        store: Store,
        *,
        group: str = "",  # tells apart consumer groups that share a store
        keep: Duration = KEEP,  # how long a consumed message is remembered
        lease: Duration = LEASE,  # how long a handler may take before others may try
        key: Callable[[Any], str] = key_of,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self._store = store
        self._group = group
        self._keep_ms = round(seconds_of(keep) * 1000)
        self._lease_ms = round(seconds_of(lease) * 1000)
        if self._keep_ms <= 0 or self._lease_ms <= 0:
            raise InvalidArgument("keep and lease are times to come; give more than 0")
        self._key = key
        self._clock = clock or SystemClock()
        self._random = random or SystemRandom()

    def __call__(self, handler: H) -> H:
        """The handler, called once for each key; its last argument is the message."""
        if is_async(handler):

            @functools.wraps(handler)
            async def awaiting(*arguments: Any) -> None:
                async with self.once(arguments[-1]) as is_first:
                    if is_first:
                        await handler(*arguments)

            return cast(H, awaiting)

        @functools.wraps(handler)
        def blocking(*arguments: Any) -> None:
            with self.once_blocking(arguments[-1]) as is_first:
                if is_first:
                    handler(*arguments)

        return cast(H, blocking)

    @contextlib.asynccontextmanager
    async def once(self, message: Keyed) -> AsyncIterator[bool]:
        """True if the message is to be consumed now, False if it has been; raises InProgress.

        A block that raises gives the message back, so that it can be tried again.
        """
        claim = self._claim_of(message)
        if not _is_ours(await self._ask(self._claim, claim)):
            yield False
            return
        try:
            yield True
        except BaseException:
            await self._ask(self._release, claim)
            raise
        claim.check(await self._ask(self._finish, claim))

    @contextlib.contextmanager
    def once_blocking(self, message: Keyed) -> Iterator[bool]:
        """As `once`, for code that blocks."""
        claim = self._claim_of(message)
        if not _is_ours(_at_once(self._claim(claim))):
            yield False
            return
        try:
            yield True
        except BaseException:
            _at_once(self._release(claim))
            raise
        claim.check(_at_once(self._finish(claim)))

    def _claim_of(self, message: Keyed) -> _Claiming:
        owner = f"{self._random.getrandbits(128):032x}"
        return _Claiming(f"{self._group}:{self._key(message)}", owner)

    def _claim(self, claim: _Claiming) -> Claim | Awaitable[Claim]:
        now_ms = self._clock.wall_ms()
        until_ms = now_ms + self._lease_ms
        return self._store.claim(claim.key, claim.owner, now_ms=now_ms, until_ms=until_ms)

    def _finish(self, claim: _Claiming) -> bool | Awaitable[bool]:
        now_ms = self._clock.wall_ms()
        until_ms = now_ms + self._keep_ms
        return self._store.finish(claim.key, claim.owner, now_ms=now_ms, until_ms=until_ms)

    def _release(self, claim: _Claiming) -> object:
        return self._store.release(claim.key, claim.owner)

    async def _ask(self, ask: Callable[[_Claiming], T | Awaitable[T]], claim: _Claiming) -> T:
        """The store's answer, without holding up the loop."""
        outcome = await asyncio.to_thread(ask, claim) if self._store.blocks else ask(claim)
        return await outcome if inspect.isawaitable(outcome) else outcome


class _Claiming:
    """One consumer's hold on a key."""

    def __init__(self, key: str, owner: str) -> None:
        self.key = key
        self.owner = owner

    def check(self, was_ours: bool) -> None:
        if not was_ours:
            log.warning(
                "a handler took longer than its lease, another may have run key=%s", self.key
            )


def _is_ours(claim: Claim) -> bool:
    if claim is Claim.BUSY:
        raise InProgress
    return claim is Claim.NEW


def _at_once(outcome: T | Awaitable[T]) -> T:
    if inspect.isawaitable(outcome):
        if inspect.iscoroutine(outcome):
            outcome.close()
        raise ClientError("the store awaits; a handler that blocks needs one that blocks too")
    return outcome
