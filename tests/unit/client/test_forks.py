"""A client in a forked child: it begins anew, and the parent never notices."""

import asyncio
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator

import pytest

import ariane
from ariane.client import StoredMessage
from ariane.client.loop_thread import LoopThread
from ariane.sync import Client
from ariane.testing import EmbeddedBroker

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
# Python 3.12 warns of every fork in a process with threads, which is what is tested here.
IGNORED = "ignore:This process .* is multi-threaded:DeprecationWarning"


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


def in_child(work: Callable[[], None]) -> int:
    """Do the work in a forked child; the exit status, 0 when it raised nothing."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(20)
            work()
            status = 0
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings(IGNORED)
def test_a_blocking_client_opens_again_in_a_child(broker: EmbeddedBroker) -> None:
    with Client(broker.name_server) as client:
        client.send("orders", b"parent 1")
        parent_id = client._twin.session.client_id

        def work() -> None:
            assert client.send("orders", b"child").message_id
            client.submit("orders", b"child too").result(10)
            assert client._twin.session.client_id != parent_id
            client.close()

        assert in_child(work) == 0
        client.send("orders", b"parent 2")
        client.submit("orders", b"parent 3").result(10)
        assert client._twin.session.client_id == parent_id
    messages = broker.published("orders")
    assert [message.body for message in messages] == [
        b"parent 1", b"child", b"child too", b"parent 2", b"parent 3",
    ]  # fmt: skip
    assert len({message.message_id for message in messages}) == 5


@pytest.mark.filterwarnings(IGNORED)
def test_many_children_are_many_clients(broker: EmbeddedBroker) -> None:
    with Client(broker.name_server) as client:
        client.send("orders", b"x")

        def work() -> None:
            for _ in range(5):
                client.send("orders", b"x")

        for _ in range(3):
            assert in_child(work) == 0
        client.send("orders", b"x")
    ids = [message.message_id for message in broker.published("orders")]
    assert len(ids) == len(set(ids)) == 17


@pytest.mark.filterwarnings(IGNORED)
def test_an_asyncio_client_opens_again_on_the_childs_loop(broker: EmbeddedBroker) -> None:
    client = ariane.Client(broker.name_server)

    async def parent() -> None:
        async with client:
            await client.send("orders", b"before")
            status = in_child(lambda: asyncio.run(child()))
            assert status == 0
            await client.send("orders", b"after")

    async def child() -> None:
        await client.send("orders", b"child")
        await client.close()

    asyncio.run(parent())
    bodies = [message.body for message in broker.published("orders")]
    assert bodies == [b"before", b"child", b"after"]


@pytest.mark.filterwarnings(IGNORED)
def test_a_client_made_before_and_opened_after_a_fork(broker: EmbeddedBroker) -> None:
    client = ariane.Client(broker.name_server)

    @client.checker("shop")
    def became_of(message: StoredMessage) -> bool:
        return True

    async def child() -> None:
        async with client:
            assert str(os.getpid()) in client.session.client_id
            await client.send("orders", b"child")

    assert in_child(lambda: asyncio.run(child())) == 0
    assert len(broker.published("orders")) == 1


@pytest.mark.filterwarnings(IGNORED)
def test_a_loop_thread_is_started_again_and_can_be_stopped() -> None:
    thread = LoopThread()

    async def process() -> int:
        return os.getpid()

    assert thread.run(process()) == os.getpid()

    def work() -> None:
        assert thread.run(process()) == os.getpid()
        thread.stop()

    assert in_child(work) == 0
    assert in_child(thread.stop) == 0
    assert thread.run(process()) == os.getpid()
    thread.stop()
