"""A broker group without its master: consumers go on at whichever replica is there."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from ariane import Start
from ariane.client.received import ReceivedMessage
from ariane.codes import RequestCode
from ariane.protocol.bodies import BrokerData
from tests.unit.client.fake import FakeServer
from tests.unit.client.group_broker import GROUP, TOPIC, GroupBroker, World, until, world

PULL = RequestCode.PULL_MESSAGE
COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET


def tell_of(here: World, **addresses: str) -> None:
    """What the name server says of the broker's members."""
    members: Mapping[int, str] = {int(name[1:]): address for name, address in addresses.items()}
    here.cluster._datas["a"] = BrokerData(broker_name="a", cluster="c", addresses=dict(members))


@contextlib.asynccontextmanager
async def slave() -> AsyncIterator[GroupBroker]:
    server = await FakeServer().start()
    try:
        yield GroupBroker(server)
    finally:
        await server.stop()


async def consuming(here: World, bodies: list[bytes], **choices: Any) -> Any:
    async def handle(message: ReceivedMessage) -> None:
        bodies.append(message.body)

    consumer = here.client.push_consumer(GROUP, handle, start=Start.FIRST)
    consumer.subscribe(TOPIC, **choices)
    await consumer.start()
    return consumer


@pytest.mark.parametrize("choices", [{}, {"sql": "a > 1"}], ids=["tags", "sql"])
async def test_a_new_consumer_reads_a_slave_that_is_alone(choices: dict[str, str]) -> None:
    async with slave() as other, world() as here:
        tell_of(here, _1=other.server.address)
        bodies: list[bytes] = []
        consumer = await consuming(here, bodies, **choices)
        await until(lambda: consumer.queues)
        other.store(b"kept by the slave")
        await until(lambda: bodies == [b"kept by the slave"])
        await consumer.close()
        assert (TOPIC, 0, 1) in other.commits
        assert not here.server.of(PULL)


async def test_a_consumer_goes_on_at_the_slave_when_its_master_is_gone() -> None:
    async with slave() as other, world() as here:
        tell_of(here, _0=here.server.address, _1=other.server.address)
        bodies: list[bytes] = []
        consumer = await consuming(here, bodies)
        await until(lambda: consumer.queues and here.broker.pulls())
        here.broker.store(b"one")
        await until(lambda: bodies == [b"one"])
        for body in (b"one", b"two"):  # what a replica has
            other.store(body)
        await here.server.stop()  # and the name server has not noticed yet
        while bodies != [b"one", b"two"]:
            await here.advance(1)
        other.store(b"three")
        while len(bodies) < 3:
            await here.advance(1)
        tell_of(here, _1=other.server.address)
        await here.advance(30)
        await consumer.close()
        assert (TOPIC, 0, 3) in other.commits
        assert other.server.of(COMMIT)


async def test_a_group_is_listed_by_a_slave_while_the_master_does_not_answer() -> None:
    async with slave() as other, world() as here:
        tell_of(here, _0="127.0.0.1:1", _1=other.server.address)
        bodies: list[bytes] = []
        consumer = await consuming(here, bodies)
        while not consumer.queues:
            await here.advance(1)
        other.store(b"x")
        while bodies != [b"x"]:
            await here.advance(1)
