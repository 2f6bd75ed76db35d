"""The route table as transcripts: what brokers tell and operators order, and what clients then see.

A line `> command` is carried out; the lines under it are what it must answer. Commands are the
methods of `Transcript` below.
"""

from __future__ import annotations

import pytest

from ariane.errors import RequestRejected
from ariane.nameserver.routes import Registration, RouteTable, TopicFlag
from ariane.protocol.bodies import DataVersion, QueueData, TopicConfig

TRANSCRIPTS = {
    "a broker registers and its topics are routed": """
        > register a 0 10.0.0.1:10911 orders:4 bills:2
        ok
        > route orders
        a {0: 10.0.0.1:10911} read=4 write=4 perm=6
        > route bills
        a {0: 10.0.0.1:10911} read=2 write=2 perm=6
        > route nothing
        nobody
        > clusters
        c: a
        """,
    "two brokers of one cluster share a topic": """
        > register b 0 10.0.0.2:10911 orders:8 only_b:1
        ok
        > register a 0 10.0.0.1:10911 orders:4 only_a:1
        ok
        > route orders
        a {0: 10.0.0.1:10911} read=4 write=4 perm=6
        b {0: 10.0.0.2:10911} read=8 write=8 perm=6
        > topics
        only_a only_b orders
        > clusters
        c: a b
        """,
    "two clusters are kept apart in the lists": """
        > register a 0 10.0.0.1:10911 orders:4 x:1
        ok
        > register b 0 10.0.0.2:10911 orders:4 y:1 cluster=d
        ok
        > clusters
        c: a
        d: b
        > topics_of c
        orders x
        > topics_of d
        orders y
        > topics_of nowhere
        none
        > system
        c a d b at 10.0.0.1:10911
        """,
    "an empty table": """
        > topics
        none
        > clusters
        none
        > system
        none at None
        > addresses a
        {}
        """,
    "a first registration of exactly one topic is refused and leaves nothing behind": """
        > register a 0 10.0.0.1:10911 orders:4
        refused: register broker failed: 10.0.0.1:10911 announces a single topic before its first \
full registration; register all topics first
        > clusters
        none
        > topics
        none
        """,
    "a table that is full takes what it knows and nothing new, until there is room": """
        > bounds 9 5
        > register a 0 10.0.0.1:10911 orders:4 bills:2
        ok
        > register b 0 10.0.0.2:10911 orders:4 bills:2
        ok
        > register a 0 10.0.0.1:10911 orders:8 bills:2 version=2
        ok
        > register c 0 10.0.0.3:10911 orders:4 bills:2
        refused: register broker failed: all brokers together may serve 5 topics, counted on each; \
delete some
        > clusters
        c: a b
        > delete bills
        ok
        > register c 0 10.0.0.3:10911 orders:4 bills:2
        ok
        > register b 0 10.0.0.2:10911 orders:4 x:1 y:1 version=2
        refused: register broker failed: all brokers together may serve 5 topics, counted on each; \
delete some
        > unregister c 10.0.0.3:10911
        ok
        > register b 0 10.0.0.2:10911 orders:4 x:1 y:1 version=2
        ok
        """,
    "so does one with as many brokers as it takes": """
        > bounds 2 99
        > register a 0 10.0.0.1:10911 orders:4 bills:2
        ok
        > register a 1 10.0.0.2:10911 orders:4 bills:2
        ok master=10.0.0.1:10911 replication=10.0.0.1:10911+ha
        > register b 0 10.0.0.3:10911 orders:4 bills:2
        refused: register broker failed: 2 brokers are registered, and more this name server does \
not take; start another for another cluster
        > register a 0 10.0.0.1:10911 orders:4 bills:2
        ok
        > unregister a 10.0.0.2:10911
        ok
        > register b 0 10.0.0.3:10911 orders:4 bills:2
        ok
        """,
    "a first registration without topics is taken": """
        > register a 0 10.0.0.1:10911
        ok
        > clusters
        c: a
        """,
    "one topic alone is taken once the broker is known": """
        > register a 0 10.0.0.1:10911 x:1 y:1
        ok
        > register a 0 10.0.0.1:10911 orders:4 version=2
        ok
        > topics
        orders x y
        """,
    "topics of a registration are merged with those before it": """
        > register a 0 10.0.0.1:10911 x:1 y:1
        ok
        > register a 0 10.0.0.1:10911 y:2 z:1 version=2
        ok
        > topics
        x y z
        > route y
        a {0: 10.0.0.1:10911} read=2 write=2 perm=6
        """,
    "topics that are no longer named go when the server is told to drop them": """
        > register a 0 10.0.0.1:10911 x:1 y:1
        ok
        > register b 0 10.0.0.2:10911 x:1 w:1
        ok
        > register a 0 10.0.0.1:10911 y:1 z:1 version=2 drop=yes
        ok
        > topics
        w x y z
        > route x
        b {0: 10.0.0.2:10911} read=1 write=1 perm=6
        """,
    "the same version again changes nothing an operator ordered": """
        > register a 0 10.0.0.1:10911 x:1 y:1
        ok
        > wipe a
        2
        > register a 0 10.0.0.1:10911 x:9 y:1
        ok
        > route x
        a {0: 10.0.0.1:10911} read=1 write=1 perm=4
        > register a 0 10.0.0.1:10911 x:9 y:1 version=2
        ok
        > route x
        a {0: 10.0.0.1:10911} read=9 write=9 perm=6
        """,
    "the same version again still brings back a deleted topic": """
        > register a 0 10.0.0.1:10911 x:1 y:1
        ok
        > delete x
        ok
        > route x
        nobody
        > register a 0 10.0.0.1:10911 x:1 y:1
        ok
        > route x
        a {0: 10.0.0.1:10911} read=1 write=1 perm=6
        """,
    "a replica learns where its master is and does not speak for topics": """
        > register a 0 10.0.0.1:10911 x:1 y:1
        ok
        > register a 1 10.0.0.2:10911 x:7 z:1
        ok master=10.0.0.1:10911 replication=10.0.0.1:10911+ha
        > route x
        a {0: 10.0.0.1:10911, 1: 10.0.0.2:10911} read=1 write=1 perm=6
        > route z
        nobody
        """,
    "a replica without a master: an old one is silent, a newer one speaks": """
        > register a 1 10.0.0.2:10911 x:1 y:1
        ok
        > route x
        nobody
        > register a 2 10.0.0.3:10911 x:1 y:1 acting=no
        ok
        > route x
        nobody
        > register b 1 10.0.0.4:10911 x:1 y:1 acting=no
        ok
        > route x
        b {1: 10.0.0.4:10911} read=1 write=1 perm=6
        > register d 1 10.0.0.5:10911 w:1 y:1 acting=yes
        ok
        > route w
        d {1: 10.0.0.5:10911} read=1 write=1 perm=4
        """,
    "the loss of a master leaves a broker that may act for it readable only": """
        > register a 0 10.0.0.1:10911 x:1 y:1 acting=yes connection=1
        ok
        > register a 1 10.0.0.2:10911 x:1 y:1 acting=yes connection=2
        ok master=10.0.0.1:10911 replication=10.0.0.1:10911+ha
        > close 1
        10.0.0.1:10911
        > route x
        a {1: 10.0.0.2:10911} read=1 write=1 perm=4
        """,
    "the same address under another id moves": """
        > register a 1 10.0.0.1:10911 x:1 y:1
        ok
        > register a 0 10.0.0.1:10911 x:1 y:1
        ok
        > addresses a
        {0: 10.0.0.1:10911}
        """,
    "another address takes an id over": """
        > register a 0 10.0.0.1:10911 x:1 y:1 connection=1
        ok
        > register a 0 10.0.0.2:10911 x:2 y:1 connection=2
        ok
        > route x
        a {0: 10.0.0.2:10911} read=2 write=2 perm=6
        > close 1
        none
        > addresses a
        {0: 10.0.0.2:10911}
        """,
    "but not from the winner of a later election": """
        > register a 0 10.0.0.1:10911 x:1 y:1 state=5
        ok
        > register a 0 10.0.0.2:10911 x:2 y:1 state=4 version=2
        ok
        > route x
        a {0: 10.0.0.1:10911} read=1 write=1 perm=6
        > register a 0 10.0.0.2:10911 x:2 y:1 state=6 version=2
        ok
        > addresses a
        {0: 10.0.0.2:10911}
        """,
    "a broker goes at once when its connection closes": """
        > register a 0 10.0.0.1:10911 x:1 y:1 connection=1
        ok
        > register b 0 10.0.0.2:10911 x:1 z:1 connection=2
        ok
        > close 1
        10.0.0.1:10911
        > route x
        b {0: 10.0.0.2:10911} read=1 write=1 perm=6
        > topics
        x z
        > clusters
        c: b
        > close 1
        none
        """,
    "a connection that was replaced takes nothing with it": """
        > register a 0 10.0.0.1:10911 x:1 y:1 connection=1
        ok
        > register a 0 10.0.0.1:10911 x:1 y:1 connection=2
        ok
        > close 1
        none
        > addresses a
        {0: 10.0.0.1:10911}
        """,
    "several brokers on one connection go together": """
        > register a 0 10.0.0.1:10911 x:1 y:1 connection=1
        ok
        > register b 0 10.0.0.2:10911 x:1 y:1 connection=1
        ok
        > close 1
        10.0.0.1:10911 10.0.0.2:10911
        > topics
        none
        """,
    "a broker expires when nothing was heard for longer than its time": """
        > register a 0 10.0.0.1:10911 x:1 y:1
        ok
        > at 120
        > expire
        none
        > at 120.001
        > expire
        10.0.0.1:10911
        > clusters
        none
        """,
    "a heartbeat keeps a broker, a registration too": """
        > register a 0 10.0.0.1:10911 x:1 y:1
        ok
        > at 100
        > heartbeat a 10.0.0.1:10911
        > at 200
        > expire
        none
        > register a 0 10.0.0.1:10911 x:1 y:1
        ok
        > at 320
        > expire
        none
        > at 321
        > expire
        10.0.0.1:10911
        """,
    "a broker may ask for a time of its own": """
        > register a 0 10.0.0.1:10911 x:1 y:1 timeout=5
        ok
        > at 6
        > expire
        10.0.0.1:10911
        """,
    "heartbeats of strangers mean nothing": """
        > register a 0 10.0.0.1:10911 x:1 y:1
        ok
        > at 100
        > heartbeat a 10.0.0.9:10911
        > heartbeat b 10.0.0.1:10911
        > heartbeat a 10.0.0.1:10911 cluster=d
        > at 121
        > expire
        10.0.0.1:10911
        """,
    "versions are known for members only": """
        > register a 0 10.0.0.1:10911 x:1 y:1 version=7
        ok
        > version a 10.0.0.1:10911
        7
        > version a 10.0.0.2:10911
        None
        > version b 10.0.0.1:10911
        None
        > version a 10.0.0.1:10911 cluster=d
        None
        """,
    "a broker unregisters; strangers cannot": """
        > register a 0 10.0.0.1:10911 x:1 y:1
        ok
        > register a 1 10.0.0.2:10911 x:1 y:1
        ok master=10.0.0.1:10911 replication=10.0.0.1:10911+ha
        > unregister a 10.0.0.9:10911
        unknown
        > unregister b 10.0.0.1:10911
        unknown
        > unregister a 10.0.0.1:10911 cluster=d
        unknown
        > unregister a 10.0.0.1:10911
        ok
        > route x
        a {1: 10.0.0.2:10911} read=1 write=1 perm=6
        > unregister a 10.0.0.2:10911
        ok
        > topics
        none
        """,
    "write permission is wiped and added for one broker": """
        > register a 0 10.0.0.1:10911 x:1 y:1:2
        ok
        > register b 0 10.0.0.2:10911 x:1 z:1
        ok
        > wipe a
        2
        > route x
        a {0: 10.0.0.1:10911} read=1 write=1 perm=4
        b {0: 10.0.0.2:10911} read=1 write=1 perm=6
        > route y
        a {0: 10.0.0.1:10911} read=1 write=1 perm=0
        > add a
        2
        > route y
        a {0: 10.0.0.1:10911} read=1 write=1 perm=6
        > wipe stranger
        0
        """,
    "a topic is deleted everywhere or in one cluster": """
        > register a 0 10.0.0.1:10911 x:1 y:1
        ok
        > register b 0 10.0.0.2:10911 x:1 y:1 cluster=d
        ok
        > delete x cluster=d
        ok
        > route x
        a {0: 10.0.0.1:10911} read=1 write=1 perm=6
        > delete y cluster=nowhere
        ok
        > route y
        a {0: 10.0.0.1:10911} read=1 write=1 perm=6
        b {0: 10.0.0.2:10911} read=1 write=1 perm=6
        > delete y
        ok
        > route y
        nobody
        > delete never_there
        ok
        """,
    "queues of known brokers are added to a topic": """
        > register a 0 10.0.0.1:10911 x:1 y:1
        ok
        > register_topic new a:3
        > route new
        a {0: 10.0.0.1:10911} read=3 write=3 perm=6
        > register_topic new a:4 stranger:4
        > route new
        a {0: 10.0.0.1:10911} read=3 write=3 perm=6
        > register_topic newer stranger:4
        > route newer
        nobody
        > register_topic newest
        > route newest
        nobody
        """,
    "topics bound to a data centre are listed by their flags": """
        > register a 0 10.0.0.1:10911 plain:1:6:0 unit:1:6:1 subscribed:1:6:2 both:1:6:3
        ok
        > units
        unit=both unit subscribed=both subscribed subscribed_only=subscribed
        """,
}


class Transcript:
    """Carries out the commands of a transcript against one table."""

    def __init__(self) -> None:
        self.table = RouteTable()
        self.now_s = 0.0

    def run(self, line: str) -> list[str]:
        name, *words = line.split()
        options = dict(word.split("=") for word in words if "=" in word)
        words = [word for word in words if "=" not in word]
        return [str(answer) for answer in getattr(self, name)(*words, **options)]

    def bounds(self, members: str, queue_sets: str) -> list[str]:
        self.table = RouteTable(members_max=int(members), queue_sets_max=int(queue_sets))
        return []

    def at(self, now_s: str) -> list[str]:
        self.now_s = float(now_s)
        return []

    def register(
        self,
        name: str,
        broker_id: str,
        address: str,
        *topics: str,
        cluster: str = "c",
        connection: str = "1",
        version: str = "1",
        state: str = "0",
        timeout: str = "120",
        acting: str | None = None,
        drop: str = "no",
    ) -> list[str]:
        registration = Registration(
            cluster=cluster,
            broker_name=name,
            broker_id=int(broker_id),
            address=address,
            replication_address=address + "+ha",
            connection_id=int(connection),
            timeout_s=float(timeout),
            data_version=DataVersion(counter=int(version), state_version=int(state), timestamp=0),
            topics={topic.name: topic for topic in map(topic_of, topics)},
            may_act_as_master=None if acting is None else acting == "yes",
        )
        try:
            told = self.table.register(registration, self.now_s, drop_missing=drop == "yes")
        except RequestRejected as rejection:
            return [f"refused: {rejection}"]
        if told.master_address is None:
            return ["ok"]
        return [f"ok master={told.master_address} replication={told.replication_address}"]

    def unregister(self, name: str, address: str, cluster: str = "c") -> list[str]:
        return ["ok" if self.table.unregister(cluster, name, address) else "unknown"]

    def heartbeat(self, name: str, address: str, cluster: str = "c") -> list[str]:
        self.table.heartbeat(cluster, name, address, self.now_s)
        return []

    def version(self, name: str, address: str, cluster: str = "c") -> list[object]:
        version = self.table.data_version(cluster, name, address)
        return [version and version.counter]

    def close(self, connection: str) -> list[str]:
        return [listed(self.table.connection_closed(int(connection)))]

    def expire(self) -> list[str]:
        return [listed(self.table.expire(self.now_s))]

    def route(self, topic: str) -> list[str]:
        route = self.table.route(topic)
        if route is None:
            return ["nobody"]
        assert [broker.broker_name for broker in route.brokers] == [
            queues.broker_name for queues in route.queues
        ]
        return [
            f"{broker.broker_name} {shown(broker.addresses)} read={queues.read_queue_count}"
            f" write={queues.write_queue_count} perm={queues.permission}"
            for broker, queues in zip(route.brokers, route.queues, strict=True)
        ]

    def clusters(self) -> list[str]:
        info = self.table.cluster_info()
        assert sorted(info.brokers) == sorted(n for names in info.clusters.values() for n in names)
        return [f"{name}: {listed(names)}" for name, names in info.clusters.items()] or ["none"]

    def topics(self) -> list[str]:
        return [listed(self.table.topics())]

    def topics_of(self, cluster: str) -> list[str]:
        return [listed(self.table.topics_of_cluster(cluster))]

    def system(self) -> list[str]:
        found = self.table.system_topics()
        return [f"{listed(found.topics)} at {found.broker_address}"]

    def addresses(self, name: str) -> list[str]:
        return [shown(self.table.addresses(name))]

    def wipe(self, name: str) -> list[int]:
        return [self.table.wipe_write_permission(name)]

    def add(self, name: str) -> list[int]:
        return [self.table.add_write_permission(name)]

    def delete(self, topic: str, cluster: str | None = None) -> list[str]:
        self.table.delete_topic(topic, cluster)
        return ["ok"]

    def register_topic(self, topic: str, *queues: str) -> list[str]:
        pairs = [word.split(":") for word in queues]
        self.table.register_topic(
            topic,
            [
                QueueData(
                    broker_name=name,
                    read_queue_count=int(count),
                    write_queue_count=int(count),
                    permission=6,
                    system_flag=0,
                )
                for name, count in pairs
            ],
        )
        return []

    def units(self) -> list[str]:
        unit, subscribed = TopicFlag.UNIT, TopicFlag.UNIT_SUBSCRIBED
        return [
            f"unit={listed(self.table.topics_with(has=unit))}"
            f" subscribed={listed(self.table.topics_with(has=subscribed))}"
            f" subscribed_only={listed(self.table.topics_with(has=subscribed, lacks=unit))}"
        ]


def topic_of(word: str) -> TopicConfig:
    name, count, permission, flag = (word.split(":") + ["6", "0"][word.count(":") - 1 :])[:4]
    return TopicConfig(
        name=name,
        read_queue_count=int(count),
        write_queue_count=int(count),
        permission=int(permission),
        system_flag=int(flag),
    )


def listed(names: list[str]) -> str:
    return " ".join(names) or "none"


def shown(addresses: dict[int, str]) -> str:
    return "{" + ", ".join(f"{i}: {address}" for i, address in addresses.items()) + "}"


@pytest.mark.parametrize("script", TRANSCRIPTS.values(), ids=TRANSCRIPTS)
def test_transcript(script: str) -> None:
    transcript = Transcript()
    expected = [line.strip() for line in script.strip().splitlines()]
    actual: list[str] = []
    for line in expected:
        if line.startswith("> "):
            actual += [line, *transcript.run(line[2:])]
    assert actual == expected
