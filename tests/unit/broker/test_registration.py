"""Registration: all name servers at once, none waiting for another, again when it is due."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import pytest

from ariane.broker.registration import FEW_TOPICS, NEWS_SHARE, Registration, addresses_of
from ariane.codes import RequestCode, ResponseCode
from ariane.config import BrokerConfig
from ariane.errors import ConnectionLost
from ariane.protocol import fastjson
from ariane.protocol.bodies import (
    QueueData,
    RegisterBrokerBody,
    TopicRouteData,
    decode_register_body,
)
from ariane.protocol.command import Command, reply
from tests.unit.broker.rig import STORE_HOST, Rig


class NameServer:
    """Answers at once, never, or not at all."""

    def __init__(self) -> None:
        self.heard: list[Command] = []
        self.code = 0
        self.is_down = False
        self.is_slow = False
        self.knows_news = True
        self.connection: SimpleNamespace | None = None
        self.held: list[asyncio.Future[None]] = []

    def bodies(self) -> list[RegisterBrokerBody]:
        return [
            decode_register_body(command.body)
            for command in self.heard
            if command.code == RequestCode.REGISTER_BROKER
        ]

    def news(self) -> dict[str, QueueData]:
        """The topics told one by one, as they were told last."""
        return {
            command.ext["topic"]: fastjson.decode(command.body, TopicRouteData).queues[0]
            for command in self.heard
            if command.code == RequestCode.REGISTER_TOPIC_IN_NAMESRV
        }

    def drop(self) -> None:
        """Lose the connection."""
        assert self.connection is not None
        lost, self.connection = self.connection, None
        for callback in lost.on_close:
            callback(lost)


class Pool:
    """Connections to name servers that are only objects."""

    def __init__(self, **servers: NameServer) -> None:
        self.servers = {f"{name}:9876": server for name, server in servers.items()}

    def existing(self, address: str) -> SimpleNamespace | None:
        return self.servers[address].connection

    async def get(self, address: str) -> SimpleNamespace:
        server = self.servers[address]
        if server.is_down:
            raise ConnectionLost(f"cannot connect to {address}")
        if server.connection is None:
            callbacks: list[Callable[[object], None]] = []
            server.connection = SimpleNamespace(on_close=callbacks)
        return server.connection

    async def close(self) -> None:
        for server in self.servers.values():
            if server.connection is not None:
                server.drop()

    async def request(self, address: str, command: Command, timeout_s: float) -> Command:
        server = self.servers[address]
        await self.get(address)
        server.heard.append(command)
        if server.is_slow:
            server.held.append(asyncio.get_running_loop().create_future())
            await server.held[-1]
        is_news = command.code == RequestCode.REGISTER_TOPIC_IN_NAMESRV
        if is_news and not server.knows_news:
            return reply(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="what?")
        return reply(command, server.code, remark="as told")


class World:
    """A broker and the name servers it should register with."""

    def __init__(self, **servers: NameServer) -> None:
        self.servers = servers
        addresses = ";".join(f"{name}:9876" for name in servers)
        self.rig = Rig(BrokerConfig(name_servers=addresses))
        pool = Pool(**servers)
        self.registration = Registration(self.rig.state, pool, STORE_HOST)  # type: ignore[arg-type]
        self.rig.state.registration = self.registration

    def is_registered(self) -> bool:
        return self.registration.links[0].is_registered

    async def pass_time(self, seconds: float) -> None:
        """Let timers fire, and what they start run."""
        self.rig.clock.advance(seconds)
        await turns()


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_broker_registers_everywhere_with_all_its_topics() -> None:
    one, two = NameServer(), NameServer()
    world = World(one=one, two=two)
    world.registration.start()
    await world.registration.settled()
    await turns()
    for server in (one, two):
        [command] = server.heard
        assert command.code == RequestCode.REGISTER_BROKER
        assert command.ext == {
            "brokerName": "broker-a",
            "brokerAddr": "127.0.0.1:10911",
            "clusterName": "DefaultCluster",
            "haServerAddr": "",
            "brokerId": "0",
            "compressed": "false",
            "bodyCrc32": str(zlib.crc32(command.body) & 0x7FFFFFFF),
        }
        assert server.bodies()[0].table == world.rig.state.topics.table()
    await world.pass_time(30)
    assert (len(one.heard), len(two.heard)) == (2, 2)


async def test_changes_within_one_turn_are_told_together() -> None:
    server = NameServer()
    world = World(one=server)
    world.registration.start()
    await turns()
    for number in range(50):
        world.rig.topic(f"topic{number}")
    await turns()
    assert len(server.heard) == 2
    assert "topic49" in server.bodies()[-1].table.topics


async def test_a_few_changes_are_told_one_by_one() -> None:
    server = NameServer()
    world = World(one=server)
    world.registration.start()
    await turns()
    world.rig.topic("T", read_queue_count=6, write_queue_count=3, permission=4)
    await turns()
    assert len(server.bodies()) == 1
    assert server.news() == {
        "T": QueueData(
            broker_name="broker-a", read_queue_count=6, write_queue_count=3, permission=4
        )
    }
    world.rig.topic("T", read_queue_count=6, write_queue_count=6, permission=6)
    await turns()
    assert server.news()["T"].write_queue_count == 6
    await world.pass_time(30)
    assert "T" in server.bodies()[-1].table.topics


async def test_changes_that_are_few_among_all_are_told_by_themselves() -> None:
    server = NameServer()
    world = World(one=server)
    for number in range(NEWS_SHARE * (FEW_TOPICS + 1)):
        world.rig.topic(f"old-{number}")
    world.registration.start()
    await turns()
    for number in range(FEW_TOPICS + 1):
        world.rig.topic(f"new-{number}")
    await turns()
    assert len(server.bodies()) == 1
    assert len(server.news()) == FEW_TOPICS + 1


async def test_who_made_a_topic_waits_for_it_and_not_for_later_ones() -> None:
    server = NameServer()
    world = World(one=server)
    world.registration.start()
    await turns()
    server.is_slow = True
    told: list[str] = []
    for name in ("T1", "T2"):
        world.rig.topic(name)
        world.registration.when_told(partial(told.append, name))
        await turns()
    server.held.pop(0).set_result(None)
    await turns()
    assert told == ["T1"]
    server.held.pop().set_result(None)
    await turns()
    assert told == ["T1", "T2"]


async def test_a_name_server_that_cannot_hear_of_one_topic_hears_of_all() -> None:
    server = NameServer()
    server.knows_news = False
    world = World(one=server)
    world.registration.start()
    await turns()
    for name in ("T1", "T2"):
        world.rig.topic(name)
        await turns()
        assert name in server.bodies()[-1].table.topics
    assert [command.code for command in server.heard] == [103, 217, 103, 103]
    assert world.is_registered()


async def test_news_that_got_lost_are_part_of_the_next_registration() -> None:
    server = NameServer()
    world = World(one=server)
    world.registration.start()
    await turns()
    server.is_slow = True
    world.rig.topic("T")
    await turns()
    server.held.pop().set_exception(ConnectionLost("closed"))
    await turns()
    server.is_slow = False
    assert not world.is_registered()
    await world.pass_time(3)
    assert "T" in server.bodies()[-1].table.topics
    assert world.is_registered()


async def test_deletions_are_told_together_a_little_later() -> None:
    server = NameServer()
    world = World(one=server)
    world.registration.start()
    for name in ("T1", "T2", "T3"):
        world.rig.topic(name)
    await turns()
    heard = len(server.heard)
    for name in ("T1", "T2"):
        world.rig.state.topics.delete(name)
        await turns()
    assert len(server.heard) == heard
    await world.pass_time(1)
    assert len(server.heard) == heard + 1
    assert {"T1", "T2", "T3"} & server.bodies()[-1].table.topics.keys() == {"T3"}
    world.rig.topic("T4")
    world.rig.state.topics.delete("T4")  # before it could be told
    await turns()
    assert "T4" not in server.news()


async def test_changed_settings_are_told_at_once() -> None:
    server = NameServer()
    world = World(one=server)
    world.registration.start()
    await turns()
    world.rig.state.updates.update(world.rig.state, {"brokerPermission": "4"})
    await turns()
    assert server.bodies()[-1].table.topics["SELF_TEST_TOPIC"].permission == 4
    world.rig.topic("T", permission=6)
    await turns()
    assert server.news()["T"].permission == 4


async def test_changes_during_a_request_are_told_after_it() -> None:
    server = NameServer()
    world = World(one=server)
    world.registration.start()
    await turns()
    server.is_slow = True
    world.rig.topic("during")
    await turns()
    for number in range(20):
        world.rig.topic(f"later{number}")
        await turns()
    assert len(server.heard) == 2  # one under way, and no more at a time
    server.is_slow = False
    server.held.pop().set_result(None)
    await turns()
    assert len(server.heard) == 3
    assert "later19" in server.bodies()[-1].table.topics


async def test_one_that_is_gone_or_silent_delays_nobody() -> None:
    good, gone, silent = NameServer(), NameServer(), NameServer()
    gone.is_down = silent.is_slow = True
    world = World(gone=gone, silent=silent, good=good)
    world.registration.start()
    await asyncio.wait_for(world.registration.settled(), 5)
    assert len(good.heard) == 1
    world.rig.topic("new")
    await turns()
    assert "new" in good.news()
    for future in silent.held:
        future.set_result(None)
    await turns()


async def test_failure_is_retried_soon_and_success_ends_that() -> None:
    server = NameServer()
    server.is_down = True
    world = World(one=server)
    world.registration.start()
    await world.registration.settled()
    assert not world.is_registered()
    server.is_down = False
    await world.pass_time(3)
    assert world.is_registered()
    await world.pass_time(9)
    assert len(server.heard) == 1
    server.code = 1  # it refuses
    await world.pass_time(30)
    assert not world.is_registered()


async def test_a_lost_connection_is_made_good() -> None:
    server = NameServer()
    world = World(one=server)
    world.registration.start()
    await turns()
    server.drop()
    assert not world.is_registered()
    await world.pass_time(1)
    assert world.is_registered()
    assert len(server.heard) == 2


async def test_a_stopping_broker_says_goodbye_to_those_it_reached() -> None:
    there, gone = NameServer(), NameServer()
    gone.is_down = True
    world = World(there=there, gone=gone)
    world.registration.start()
    await turns()
    await world.registration.stop()
    assert there.heard[-1].code == RequestCode.UNREGISTER_BROKER
    assert there.heard[-1].ext["brokerAddr"] == "127.0.0.1:10911"
    assert gone.heard == []
    assert there.connection is None
    heard = len(there.heard)
    await world.pass_time(120)
    assert len(there.heard) == heard


async def test_rights_the_broker_lacks_are_not_offered() -> None:
    server = NameServer()
    world = World(one=server)
    world.rig.configure(permission=4)
    world.rig.topic("T", permission=6)
    world.registration.start()
    await turns()
    topics = server.bodies()[-1].table.topics
    assert topics["T"].permission == 4
    assert topics["TBW102"].permission == 5


async def test_a_change_is_known_when_those_that_listen_have_heard_it() -> None:
    quick, slow, gone = NameServer(), NameServer(), NameServer()
    gone.is_down = True
    world = World(quick=quick, slow=slow, gone=gone)
    world.registration.start()
    await turns()
    slow.is_slow = True
    told: list[str] = []
    world.rig.topic("T")
    world.registration.when_told(lambda: told.append("T"))
    await turns()
    assert told == []
    slow.held.pop().set_result(None)
    await turns()
    assert told == ["T"]
    world.registration.when_told(lambda: told.append("nothing new"))
    assert told == ["T", "nothing new"]
    world.rig.topic("T2")
    world.registration.when_told(lambda: told.append("T2"))
    await world.pass_time(1)  # the slow one is too slow
    assert told[-1] == "T2"
    slow.held.pop().set_result(None)
    await turns()
    assert told.count("T2") == 1


async def test_a_silent_name_server_is_waited_for_once() -> None:
    quick, silent = NameServer(), NameServer()
    world = World(quick=quick, silent=silent)
    world.registration.start()
    await turns()
    silent.is_slow = True
    told: list[str] = []
    for name in ("T1", "T2"):
        world.rig.topic(name)
        world.registration.when_told(partial(told.append, name))
    await world.pass_time(1)
    assert told == ["T1", "T2"]
    world.rig.topic("T3")
    world.registration.when_told(partial(told.append, "T3"))
    await turns()
    assert told[-1] == "T3"  # as soon as the quick one knows
    silent.is_slow = False
    while silent.held:
        silent.held.pop().set_result(None)
    await turns()
    silent.is_slow = True
    world.rig.topic("T4")
    world.registration.when_told(partial(told.append, "T4"))
    await turns()
    assert told[-1] == "T3"  # it answered again, so it is worth waiting for
    silent.held.pop().set_result(None)
    await turns()
    assert told[-1] == "T4"


async def test_a_broker_without_name_servers_serves_alone() -> None:
    world = World()
    world.registration.start()
    await world.registration.settled()
    world.rig.topic("T")
    told: list[bool] = []
    world.registration.when_told(lambda: told.append(True))
    assert told == [True]
    await world.registration.stop()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", []), ("a:1", ["a:1"]), (" a:1 ; b:2;;a:1;", ["a:1", "b:2"])],
)
def test_addresses_are_listed_once(text: str, expected: list[str]) -> None:
    assert addresses_of(text) == expected
