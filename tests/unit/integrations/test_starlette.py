"""An application of the real Starlette, called by hand."""

import asyncio
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

import ariane
from ariane import Start
from ariane.integrations.starlette import lifespan
from ariane.testing import EmbeddedBroker


class Server:
    """What uvicorn does: the lifespan, and one request."""

    def __init__(self, app: Starlette) -> None:
        self.app = app
        self.to_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.from_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.state: dict[str, Any] = {}

    async def lifespan(self, what: str) -> None:
        if what == "startup":
            scope = {"type": "lifespan", "state": self.state}
            self.task = asyncio.create_task(self.app(scope, self.to_app.get, self.from_app.put))
        await self.to_app.put({"type": f"lifespan.{what}"})
        assert (await self.from_app.get())["type"] == f"lifespan.{what}.complete"

    async def get(self, path: str) -> bytes:
        answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        scope = {
            "type": "http", "method": "GET", "path": path, "query_string": b"", "headers": [],
            "state": dict(self.state),
        }  # fmt: skip
        await self.app(scope, receive, answers.put)
        await answers.get()
        return (await answers.get())["body"]  # type: ignore[no-any-return]


async def test_the_client_lives_as_long_as_the_application(ariane_broker: EmbeddedBroker) -> None:
    client = ariane.Client(ariane_broker.name_server)
    billed: asyncio.Queue[str] = asyncio.Queue()

    @client.consumer("orders", group="billing", start=Start.FIRST)
    async def bill(message: ariane.ReceivedMessage) -> None:
        await billed.put(message.text)

    async def order(request: Request) -> PlainTextResponse:
        receipt = await request.state.ariane.send("orders", b"42 apples")
        return PlainTextResponse(receipt.message_id)

    app = Starlette(routes=[Route("/order", order)], lifespan=lifespan(client))
    server = Server(app)
    async with asyncio.timeout(60):
        with client_topics(ariane_broker):
            await server.lifespan("startup")
            assert client.session.is_open
            message_id = (await server.get("/order")).decode()
            assert await billed.get() == "42 apples"
            await server.lifespan("shutdown")
        await server.task
    assert not client.session.is_open
    assert [message.message_id for message in ariane_broker.published("orders")] == [message_id]


def client_topics(broker: EmbeddedBroker) -> ariane.sync.Client:
    client = broker.blocking_client()
    client.admin.create_topic("orders")
    return client
