"""Who serves which topic: a table that is told what happened and when, and does nothing else.

A broker name stands for one master (id 0) and its replicas; queues belong to the name, addresses to
the members. Invariant: every broker in the table has at least one member, and every topic is served
by at least one broker in the table. Time is in seconds on a clock that never goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Final

from msgspec.structs import replace

from ariane.codes import Permission
from ariane.errors import RequestRejected
from ariane.protocol.bodies import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicList,
    TopicRouteData,
)

MASTER_ID: Final = 0
# Whoever reaches the port may say that it is a broker, so what is kept of them all has bounds.
MEMBERS_MAX: Final = 10_000
QUEUE_SETS_MAX: Final = 1_000_000  # a topic on a broker is one, however many queues it has there


class TopicFlag(IntFlag):
    """Bits of `topicSysFlag`: a topic, or a subscription to it, is bound to one data centre."""

    UNIT = 1
    UNIT_SUBSCRIBED = 2


NO_FLAG: Final = TopicFlag(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a broker says of itself each time it registers."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    replication_address: str
    connection_id: int
    timeout_s: float
    data_version: DataVersion
    topics: Mapping[str, TopicConfig]
    may_act_as_master: bool | None = None  # None: a broker too old to know of it

    @property
    def is_master(self) -> bool:
        """Whether this member takes writes for the broker name."""
        return self.broker_id == MASTER_ID


@dataclass(frozen=True, slots=True)
class Registered:
    """What comes of registering: whether it is new here, and to a replica, where its master is."""

    is_new: bool = False
    master_address: str | None = None
    replication_address: str | None = None


@dataclass(slots=True)
class Member:
    """One address of a broker name, alive until `last_seen_s + timeout_s`."""

    address: str
    replication_address: str
    connection_id: int
    data_version: DataVersion
    timeout_s: float
    last_seen_s: float


@dataclass(slots=True)
class Broker:
    """One broker name and its members by id."""

    name: str
    cluster: str
    may_act_as_master: bool = False
    members: dict[int, Member] = field(default_factory=dict)

    def id_at(self, address: str) -> int | None:
        """The id of the member at the address."""
        for broker_id, member in self.members.items():
            if member.address == address:
                return broker_id
        return None

    def data(self) -> BrokerData:
        """The broker as clients are told of it."""
        return BrokerData(
            cluster=self.cluster,
            broker_name=self.name,
            addresses={i: self.members[i].address for i in sorted(self.members)},
            enable_acting_master=self.may_act_as_master,
        )


class RouteTable:
    """Brokers that are alive and the queues they serve."""

    def __init__(
        self, *, members_max: int = MEMBERS_MAX, queue_sets_max: int = QUEUE_SETS_MAX
    ) -> None:
        self._brokers: dict[str, Broker] = {}
        self._topics: dict[str, dict[str, QueueData]] = {}  # topic -> broker name -> its queues
        self._queue_set_count = 0
        self._members_max = members_max
        self._queue_sets_max = queue_sets_max

    # What brokers tell.

    def register(
        self, registration: Registration, now_s: float, *, drop_missing: bool = False
    ) -> Registered:
        """Take in a broker and its topics; topics it no longer names go only if `drop_missing`."""
        broker = self._brokers.get(registration.broker_name)
        previous = None if broker is None else broker.members.get(registration.broker_id)
        if previous is None and len(registration.topics) == 1:
            # One topic alone is an announcement between full registrations; before the first of
            # these it would hide all the other topics until the next.
            raise RequestRejected(
                f"register broker failed: {registration.address} announces a single topic before"
                " its first full registration; register all topics first"
            )
        if previous is None:
            self._check_room_for_member()
        self._check_room_for(registration.broker_name, registration.topics)
        if broker is None:
            broker = self._brokers[registration.broker_name] = Broker(
                registration.broker_name, registration.cluster
            )
        stale_id = broker.id_at(registration.address)
        if stale_id is not None and stale_id != registration.broker_id:
            del broker.members[stale_id]  # a replica that became master, or the reverse
        if previous is not None and _is_outranked(registration, previous):
            return Registered()
        broker.cluster = registration.cluster
        broker.may_act_as_master = bool(registration.may_act_as_master)
        broker.members[registration.broker_id] = Member(
            address=registration.address,
            replication_address=registration.replication_address,
            connection_id=registration.connection_id,
            data_version=registration.data_version,
            timeout_s=registration.timeout_s,
            last_seen_s=now_s,
        )
        if _speaks_for_topics(registration, broker):
            is_news = previous is None or not _is_same(registration, previous)
            self._take_topics(registration, is_news=is_news, drop_missing=drop_missing)
        return _told_to(registration, broker, is_new=previous is None)

    def unregister(self, cluster: str, broker_name: str, address: str) -> bool:
        """Forget a member; the last one takes the broker name and its queues along."""
        broker = self._brokers.get(broker_name)
        if broker is None or broker.cluster != cluster:
            return False
        broker_id = broker.id_at(address)
        if broker_id is None:
            return False
        self._remove(broker, broker_id)
        return True

    def heartbeat(self, cluster: str, broker_name: str, address: str, now_s: float) -> None:
        """Note that a member is alive; one that never registered stays unknown."""
        member = self._member(cluster, broker_name, address)
        if member is not None:
            member.last_seen_s = now_s

    def data_version(self, cluster: str, broker_name: str, address: str) -> DataVersion | None:
        """The version of the topics the member registered last."""
        member = self._member(cluster, broker_name, address)
        return None if member is None else member.data_version

    def connection_closed(self, connection_id: int) -> list[str]:
        """Forget the members that registered last over this connection; return their addresses."""
        return self._remove_where(lambda member: member.connection_id == connection_id)

    def expire(self, now_s: float) -> list[str]:
        """Forget the members not heard of for too long; return their addresses."""
        return self._remove_where(lambda member: member.last_seen_s + member.timeout_s < now_s)

    # What clients ask.

    def route(self, topic: str) -> TopicRouteData | None:
        """Where the topic's queues are, or None when nobody serves it."""
        queues = self._topics.get(topic)
        if queues is None:
            return None
        names = sorted(queues)
        return TopicRouteData(
            queues=[queues[name] for name in names],
            brokers=[self._brokers[name].data() for name in names],
        )

    def cluster_info(self) -> ClusterInfo:
        """Every broker, and the clusters they form."""
        return ClusterInfo(
            brokers={name: self._brokers[name].data() for name in sorted(self._brokers)},
            clusters=self._clusters(),
        )

    def addresses(self, broker_name: str) -> dict[int, str]:
        """The members of one broker name, by id."""
        broker = self._brokers.get(broker_name)
        return {} if broker is None else broker.data().addresses

    def topics(self) -> list[str]:
        """Every topic that somebody serves."""
        return sorted(self._topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """The topics that brokers of the cluster serve."""
        names = set(self._clusters().get(cluster, ()))
        return sorted(
            topic for topic, queues in self._topics.items() if not names.isdisjoint(queues)
        )

    def topics_with(self, *, has: TopicFlag, lacks: TopicFlag = NO_FLAG) -> list[str]:
        """The topics whose flags include all of `has` and none of `lacks`."""
        return sorted(
            topic
            for topic, queues in self._topics.items()
            if (flags := next(iter(queues.values())).system_flag) & has == has and not flags & lacks
        )

    def system_topics(self) -> TopicList:
        """The names every broker makes a topic of: clusters and brokers; and one address to ask."""
        names = [
            name for cluster, brokers in self._clusters().items() for name in (cluster, *brokers)
        ]
        some_broker = next(iter(self._brokers.values()), None)
        address = None if some_broker is None else next(iter(some_broker.data().addresses.values()))
        return TopicList(topics=names, broker_address=address)

    # What operators order.

    def wipe_write_permission(self, broker_name: str) -> int:
        """Keep producers away from a broker; return how many topics that touched."""
        return self._set_permission(broker_name, lambda held: held & ~Permission.WRITE)

    def add_write_permission(self, broker_name: str) -> int:
        """Let producers come back to a broker; return how many topics that touched."""
        return self._set_permission(broker_name, lambda _: Permission.READ | Permission.WRITE)

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> None:
        """Add queues of known brokers to a topic; if any broker is unknown, add none."""
        added = {queue.broker_name: queue for queue in queues}
        if added and added.keys() <= self._brokers.keys():
            for name in added:
                self._check_room_for(name, (topic,))
            for name, queue in added.items():
                self._put_queues(topic, name, queue)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, on the brokers of one cluster if it is named."""
        for name in list(self._topics.get(topic, ())):
            if cluster is None or self._brokers[name].cluster == cluster:
                self._drop_queues(topic, name)

    # Inside.

    def _take_topics(
        self, registration: Registration, *, is_news: bool, drop_missing: bool
    ) -> None:
        name = registration.broker_name
        if drop_missing:
            for topic in self._topics_of(name):
                if topic not in registration.topics:
                    self._drop_queues(topic, name)
        for topic, config in registration.topics.items():
            # The same version again must not undo what an operator ordered since.
            if is_news or name not in self._topics.get(topic, ()):
                self._put_queues(topic, name, _queues_of(config, registration))

    def _remove_where(self, is_gone: Callable[[Member], bool]) -> list[str]:
        gone = [
            (broker, broker_id, member.address)
            for broker in self._brokers.values()
            for broker_id, member in broker.members.items()
            if is_gone(member)
        ]
        for broker, broker_id, _ in gone:
            self._remove(broker, broker_id)
        return [address for _, _, address in gone]

    def _remove(self, broker: Broker, broker_id: int) -> None:
        del broker.members[broker_id]
        if not broker.members:
            del self._brokers[broker.name]
            for topic in self._topics_of(broker.name):
                self._drop_queues(topic, broker.name)
        elif broker.may_act_as_master and MASTER_ID not in broker.members:
            self.wipe_write_permission(broker.name)

    def _check_room_for_member(self) -> None:
        if sum(len(broker.members) for broker in self._brokers.values()) >= self._members_max:
            raise RequestRejected(
                f"register broker failed: {self._members_max:,} brokers are registered, and more"
                " this name server does not take; start another for another cluster"
            )

    def _check_room_for(self, broker_name: str, topics: Collection[str]) -> None:
        room = self._queue_sets_max - self._queue_set_count
        if len(topics) > room and room < sum(
            broker_name not in self._topics.get(topic, ()) for topic in topics
        ):
            raise RequestRejected(
                f"register broker failed: all brokers together may serve"
                f" {self._queue_sets_max:,} topics, counted on each; delete some"
            )

    def _put_queues(self, topic: str, broker_name: str, queues: QueueData) -> None:
        by_broker = self._topics.setdefault(topic, {})
        self._queue_set_count += broker_name not in by_broker
        by_broker[broker_name] = queues

    def _drop_queues(self, topic: str, broker_name: str) -> None:
        queues = self._topics[topic]
        del queues[broker_name]
        self._queue_set_count -= 1
        if not queues:
            del self._topics[topic]

    def _set_permission(self, broker_name: str, changed: Callable[[int], int]) -> int:
        topics = self._topics_of(broker_name)
        for topic in topics:
            queues = self._topics[topic]
            queues[broker_name] = replace(
                queues[broker_name], permission=int(changed(queues[broker_name].permission))
            )
        return len(topics)

    def _topics_of(self, broker_name: str) -> list[str]:
        return [topic for topic, queues in self._topics.items() if broker_name in queues]

    def _member(self, cluster: str, broker_name: str, address: str) -> Member | None:
        broker = self._brokers.get(broker_name)
        if broker is None or broker.cluster != cluster:
            return None
        broker_id = broker.id_at(address)
        return None if broker_id is None else broker.members[broker_id]

    def _clusters(self) -> dict[str, list[str]]:
        clusters: dict[str, list[str]] = {}
        for name in sorted(self._brokers):
            clusters.setdefault(self._brokers[name].cluster, []).append(name)
        return clusters


def _is_outranked(registration: Registration, holder: Member) -> bool:
    """Whether another address holds the id by a later election than the newcomer knows of."""
    return (
        holder.address != registration.address
        and holder.data_version.state_version > registration.data_version.state_version
    )


def _is_same(registration: Registration, previous: Member) -> bool:
    return (
        previous.address == registration.address
        and previous.data_version == registration.data_version
    )


def _speaks_for_topics(registration: Registration, broker: Broker) -> bool:
    """The master does; without one, the replica of the lowest id, if it is new enough to know."""
    return registration.is_master or (
        registration.may_act_as_master is not None and registration.broker_id == min(broker.members)
    )


def _queues_of(config: TopicConfig, registration: Registration) -> QueueData:
    permission = config.permission
    if registration.may_act_as_master and not registration.is_master:
        permission &= ~Permission.WRITE  # it stands in for reads only
    return QueueData(
        broker_name=registration.broker_name,
        read_queue_count=config.read_queue_count,
        write_queue_count=config.write_queue_count,
        permission=int(permission),
        system_flag=config.system_flag,
    )


def _told_to(registration: Registration, broker: Broker, *, is_new: bool) -> Registered:
    master = broker.members.get(MASTER_ID)
    if registration.is_master or master is None:
        return Registered(is_new)
    return Registered(is_new, master.address, master.replication_address)
