"""The blocking client is the asyncio one: the same methods, taking the same, saying the same."""

import inspect
from unittest import mock

import pytest

import ariane
from ariane import sync
from ariane.client import admin, simple_consumer
from ariane.client import lite_pull_consumer as lite
from ariane.testing import EmbeddedBroker

TWINS = {
    "client": (ariane.Client, sync.Client),
    "producer": (ariane.Producer, sync.Producer),
    "push consumer": (ariane.PushConsumer, sync.PushConsumer),
    "pull consumer": (ariane.PullConsumer, sync.PullConsumer),
    "lite pull consumer": (lite.LitePullConsumer, sync.LitePullConsumer),
    "pop consumer": (ariane.PopConsumer, sync.PopConsumer),
    "simple consumer": (simple_consumer.SimpleConsumer, sync.SimpleConsumer),
    "admin": (admin.Admin, sync.Admin),
}
# What brokers and the client's own parts call, or what only one of the two needs.
INNER = {
    "begin_close", "consume_directly", "extend", "give_back", "is_closing", "is_orderly",
    "may_handlers_await", "message_kind", "offsets", "open", "parcel_alone", "rebalance", "reset",
    "running_info", "session", "subscriptions",
}  # fmt: skip


def methods_of(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")} - INNER


@pytest.mark.parametrize(("awaits", "blocks"), TWINS.values(), ids=TWINS)
def test_twins_have_the_same_methods(awaits: type, blocks: type) -> None:
    assert methods_of(awaits) == methods_of(blocks)
    for name in methods_of(awaits):
        one, other = getattr(awaits, name), getattr(blocks, name)
        if callable(one):
            assert parameters_of(one) == parameters_of(other), name
            assert not inspect.iscoroutinefunction(other), name
        assert inspect.getdoc(other), name


def parameters_of(method: object) -> list[tuple[str, object, object]]:
    assert callable(method)
    parameters = inspect.signature(method).parameters.values()
    return [(each.name, each.kind, each.default) for each in parameters]


def test_help_tells_what_a_blocking_call_returns() -> None:
    assert inspect.signature(sync.Producer.send_batch).return_annotation == "list[SendReceipt]"
    assert inspect.signature(sync.Client.subscribe).return_annotation is sync.Subscription
    assert inspect.signature(sync.Producer.submit).return_annotation == "Future[SendReceipt]"


async def test_a_send_can_be_patched() -> None:
    client = ariane.Client("127.0.0.1:1")
    with mock.patch("ariane.Client.send") as send:
        await client.send("orders", b"x", tags="paid")
    send.assert_awaited_once_with("orders", b"x", tags="paid")


async def test_a_client_can_be_specified() -> None:
    client = mock.create_autospec(ariane.Client, instance=True)
    client.send.return_value = "receipt"
    assert await client.send("orders", b"x") == "receipt"
    with pytest.raises(TypeError):
        await client.send_batch()


def test_a_blocking_client_can_be_patched_and_specified(ariane_broker: EmbeddedBroker) -> None:
    with sync.Client(ariane_broker.name_server) as client:
        with mock.patch("ariane.sync.Client.send") as send:
            client.send("orders", b"x")
        send.assert_called_once_with("orders", b"x")
        client.send("orders", b"x")
    assert len(ariane_broker.published("orders")) == 1
    specified = mock.create_autospec(sync.Client, instance=True)
    specified.send.return_value = "receipt"
    assert specified.send("orders", b"x") == "receipt"


async def test_a_subclass_may_send_in_its_own_way(ariane_broker: EmbeddedBroker) -> None:
    class Tagging(ariane.Client):
        async def send(self, *arguments: object, **named: object) -> ariane.SendReceipt:  # type: ignore[override]
            return await super().send(*arguments, tags="mine", **named)  # type: ignore[arg-type]

    async with Tagging(ariane_broker.name_server) as client:
        await client.send("orders", b"x")
    assert [message.tags for message in ariane_broker.published("orders")] == ["mine"]
