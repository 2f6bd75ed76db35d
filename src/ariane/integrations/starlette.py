"""A client that lives as long as a Starlette or FastAPI application; the extra `starlette`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from ariane import Client


class State(TypedDict):
    """What requests find in `request.state`."""

    ariane: Client


def lifespan(client: Client) -> Callable[[Starlette], AbstractAsyncContextManager[State]]:
    """What an application takes as `lifespan=`: the client is open from its start to its end.

    Handlers that were decorated with `client.consumer` are called meanwhile, and have ended before
    the application does. Requests find the client as `request.state.ariane`.
    """

    @asynccontextmanager
    async def alive(app: Starlette) -> AsyncIterator[State]:
        async with client:
            await client.start_consumers()
            yield State(ariane=client)

    return alive
