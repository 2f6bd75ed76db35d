"""Errors are where Python's own tree has them, and travel between processes."""

import copy
import pickle

import pytest

import ariane
from ariane.codes import ResponseCode
from ariane.errors import (
    BrokerBusy,
    ClientError,
    ConnectionLost,
    InvalidArgument,
    InvalidMessage,
    RequestFailed,
    RequestTimeout,
    RouteNotFound,
)
from ariane.testing import EmbeddedBroker

BASES = {
    RequestTimeout: TimeoutError,
    ConnectionLost: ConnectionError,
    InvalidArgument: ValueError,
    InvalidMessage: ValueError,
}


@pytest.mark.parametrize(("kind", "base"), BASES.items(), ids=str)
def test_errors_are_pythons_own_too(kind: type[ClientError], base: type[Exception]) -> None:
    assert issubclass(kind, base)
    for again in (copy.copy(kind("why")), pickle.loads(pickle.dumps(kind("why")))):
        assert type(again) is kind
        assert str(again) == "why"


RETRIABLE = {
    "timeout": (RequestTimeout("x"), True),
    "connection": (ConnectionLost("x"), True),
    "route": (RouteNotFound("x"), True),
    "busy": (RequestFailed.of(ResponseCode.SYSTEM_BUSY, ""), True),
    "system error": (RequestFailed.of(ResponseCode.SYSTEM_ERROR, ""), True),
    "no permission": (RequestFailed.of(ResponseCode.NO_PERMISSION, ""), False),
    "refused": (RequestFailed.of(ResponseCode.MESSAGE_ILLEGAL, ""), False),
    "unknown code": (RequestFailed.of(9999, ""), False),
    "message": (InvalidMessage("x"), False),
    "else": (ClientError("x"), False),
}


@pytest.mark.parametrize(("error", "retriable"), RETRIABLE.values(), ids=RETRIABLE)
def test_whether_another_try_may_help(error: ClientError, retriable: bool) -> None:
    assert error.retriable is retriable


def test_codes_have_names() -> None:
    busy = RequestFailed.of(2, "wait")
    assert isinstance(busy, BrokerBusy)
    assert busy.code is ResponseCode.SYSTEM_BUSY
    assert RequestFailed.of(9999, "").code == 9999


async def test_what_a_caller_meets_is_caught_by_pythons_names(
    ariane_broker: EmbeddedBroker,
) -> None:
    async with ariane.Client(ariane_broker.name_server, retries=0) as client:
        await client.send("orders", b"x")
        ariane_broker.fail("send", how="ignore", times=None)
        with pytest.raises(TimeoutError):
            await client.send("orders", b"x", timeout=0.05)
        ariane_broker.fail("send", how="disconnect", times=None)
        with pytest.raises(ValueError, match="empty"):
            await client.send("orders", b"")
        with pytest.raises(ValueError, match="concurrency=0"):
            client.subscribe("orders", group="g", concurrency=0)
    async with ariane.Client("127.0.0.1:1") as client:
        with pytest.raises(ConnectionError):
            await client.send("orders", b"x")


async def test_a_keyword_that_nobody_knows_is_answered_by_the_nearest() -> None:
    client = ariane.Client("127.0.0.1:1")
    with pytest.raises(TypeError, match="'tag'; did you mean 'tags'"):
        await client.send("orders", b"x", tag="paid")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'timout'; did you mean 'timeout'"):
        await client.send(ariane.Message("orders", b"x"), timout=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'concurency'; did you mean 'concurrency'"):
        client.subscribe("orders", group="g", concurency=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'retrys'; did you mean 'retries'"):
        ariane.Client("127.0.0.1:1", retrys=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'xyz'; there are "):
        client.producer("g", xyz=3)  # type: ignore[call-arg]
