"""A test's broker for tests that await: the same calls, which let the test's loop go on."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from ariane.testing.embedded import EmbeddedBroker

P = ParamSpec("P")
R = TypeVar("R")


def awaiting(
    name: str, method: Callable[Concatenate[EmbeddedBroker, P], R]
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """The method that awaits what this one blocks for."""

    @functools.wraps(method)
    async def call(self: Any, *arguments: Any, **named: Any) -> Any:
        return await asyncio.to_thread(getattr(self.broker, name), *arguments, **named)

    return cast("Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]", call)


class AwaitedBroker:
    """The calls of `EmbeddedBroker` that take time, for tests that await; `EmbeddedBroker.aio`."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.broker = broker

    restart = awaiting("restart", EmbeddedBroker.restart)
    advance = awaiting("advance", EmbeddedBroker.advance)
    published = awaiting("published", EmbeddedBroker.published)
    wait_for = awaiting("wait_for", EmbeddedBroker.wait_for)
    requests = awaiting("requests", EmbeddedBroker.requests)
    wait_for_requests = awaiting("wait_for_requests", EmbeddedBroker.wait_for_requests)
