"""Who is connected: consumers by group with what they subscribe to, producers by group.

Membership belongs to a connection and ends with it, at once when it closes or after two minutes
without a heartbeat. Whenever the members or the topics of a clustering group change, its members
are told (`notices.py`), so that they share the queues out anew without waiting for their own
timers. A client that reconnects may be here twice until its old connection closes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ariane.broker.filters import TAG, TAG_TYPES, tag_codes_of
from ariane.broker.notices import Notices
from ariane.clock import Timer, Timers
from ariane.protocol import fastjson
from ariane.protocol.bodies import ConsumerData, ConsumerList, SubscriptionData
from ariane.protocol.bodies.clients import BROADCASTING
from ariane.remoting.connection import Connection

LOGGER: Final = logging.getLogger("ariane.broker")

EXPIRY_S: Final = 120.0
SCAN_INTERVAL_S: Final = 10.0


@dataclass(slots=True)
class Client:
    """One client program behind one connection, as its last heartbeat described it."""

    connection: Connection
    client_id: str
    language: str
    version: int
    fingerprint: int = 0  # of its subscriptions, when it sends them only on change
    seen_s: float = 0.0
    seen_ms: int = 0

    @property
    def address(self) -> str:
        """Where it calls from, as the connection lists show it."""
        host, port = self.connection.peer
        return f"{host}:{port}"


class Subscription(NamedTuple):
    """What a group wants of one topic, ready to filter with."""

    data: SubscriptionData
    expression_type: str  # TAG unless the client said otherwise
    tag_codes: frozenset[int] | None  # None: every message
    version: int

    @classmethod
    def of(cls, data: SubscriptionData) -> Subscription:
        """Read a subscription from a heartbeat."""
        if data.expression_type not in TAG_TYPES:
            return cls(data, data.expression_type, None, data.version)
        codes = frozenset(data.tag_codes or tag_codes_of(data.expression))
        return cls(data, TAG, codes or None, data.version)


@dataclass(slots=True)
class ConsumerGroup:
    """The members of a group on this broker and what they read."""

    name: str
    consume_type: str = ""
    message_model: str = ""
    consume_from_where: str = ""
    members: dict[Connection, Client] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)  # by topic
    _client_ids: list[str] | None = None  # until the members change
    _id_list: bytes | None = None

    @property
    def is_broadcast(self) -> bool:
        """Whether every member reads every queue."""
        return self.message_model == BROADCASTING

    def subscription(self, topic: str) -> Subscription | None:
        """What the group asked for on the topic."""
        return self.subscriptions.get(topic)

    def client_ids(self) -> list[str]:
        """Every member once, however many connections it has."""
        if self._client_ids is None:
            self._client_ids = sorted({member.client_id for member in self.members.values()})
        return self._client_ids

    def id_list(self) -> bytes:
        """The members as they are told to each of them, encoded once for all who ask."""
        if self._id_list is None:
            self._id_list = fastjson.encode(ConsumerList(client_ids=self.client_ids()))
        return self._id_list

    def enter(self, client: Client) -> bool:
        """Put a member in, or its newest heartbeat; True for a new member."""
        known = self.members.get(client.connection)
        self.members[client.connection] = client
        if known is None or known.client_id != client.client_id:
            self._client_ids = self._id_list = None
        return known is None

    def remove(self, connection: Connection) -> None:
        """Take a member out."""
        del self.members[connection]
        self._client_ids = self._id_list = None

    def subscribe(self, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Take over a member's subscriptions; True when topics came or went."""
        wanted = {data.topic: Subscription.of(data) for data in subscriptions}
        for topic, subscription in self.subscriptions.items():
            if topic in wanted and wanted[topic].version <= subscription.version:
                wanted[topic] = subscription  # members may differ: the newest is the group's
        has_other_topics = wanted.keys() != self.subscriptions.keys()
        self.subscriptions = wanted
        return has_other_topics


Members = dict[Connection, Client]


class ClientRegistry:
    """Every client known to this broker."""

    def __init__(self, timers: Timers) -> None:
        self.consumers: dict[str, ConsumerGroup] = {}
        self.producers: dict[str, Members] = {}
        self.on_change: list[Callable[[str], None]] = []  # told the group whose subscriptions moved
        # Told a group and what a member of it just subscribed to; none of it when none is left.
        self.on_subscribe: list[Callable[[str, Sequence[SubscriptionData]], None]] = []
        self.notices = Notices(self.consumers, timers)
        self._timers = timers
        self._clock = timers.clock
        self._consumes: dict[Connection, set[str]] = {}  # the groups behind each connection
        self._produces: dict[Connection, set[str]] = {}
        self._producers: dict[str, Client] = {}  # by client id, where it was heard last

    def start(self) -> Timer:
        """Look for the silent from now on, until the timer is cancelled."""
        return self._timers.every(SCAN_INTERVAL_S, self.expire)

    def consumer_group(self, name: str) -> ConsumerGroup | None:
        """A group with its members and subscriptions, if any member is online."""
        return self.consumers.get(name)

    def subscription(self, group: str, topic: str) -> Subscription | None:
        """What the group asked for on the topic, if it is online and did."""
        consumers = self.consumers.get(group)
        return None if consumers is None else consumers.subscription(topic)

    def member(self, group: str, client_id: str) -> Client | None:
        """A consumer by its client id."""
        consumers = self.consumers.get(group)
        members = () if consumers is None else consumers.members.values()
        return next((member for member in members if member.client_id == client_id), None)

    def groups_on(self, topic: str) -> list[str]:
        """The online groups that subscribe to the topic."""
        groups = self.consumers.values()
        return [group.name for group in groups if topic in group.subscriptions]

    def join(self, client: Client, data: ConsumerData) -> None:
        """Enter or refresh a consumer, and take over its subscriptions for the group."""
        group = self._group(data)
        is_new = self._enter_consumer(client, group)
        before = group.subscriptions
        has_other_topics = group.subscribe(data.subscriptions)
        for listener in self.on_subscribe:
            listener(group.name, data.subscriptions)
        if group.subscriptions != before:
            self._tell(group.name)
        if is_new or has_other_topics:
            self.notices.changed(group.name)

    def refresh(self, client: Client, data: ConsumerData) -> bool:
        """Enter or refresh a consumer that left its subscriptions out; False: they are needed."""
        group = self._group(data)
        known = group.members.get(client.connection)
        if self._enter_consumer(client, group):
            self.notices.changed(group.name)
        return known is not None and known.fingerprint == client.fingerprint

    def producer(self, client_id: str) -> Client | None:
        """A producer of any group by its client id."""
        return self._producers.get(client_id)

    def produce(self, client: Client, group: str) -> None:
        """Enter or refresh a producer."""
        self._heard(client)
        self._producers[client.client_id] = client
        self.producers.setdefault(group, {})[client.connection] = client
        self._produces.setdefault(client.connection, set()).add(group)

    def leave(
        self, connection: Connection, *, consumer_group: str | None, producer_group: str | None
    ) -> None:
        """Take a client out of the groups it says goodbye to."""
        if consumer_group is not None and consumer_group in self._consumes.get(connection, ()):
            self._consumes[connection].discard(consumer_group)
            self._remove_consumer(connection, consumer_group)
        if producer_group is not None and producer_group in self._produces.get(connection, ()):
            self._produces[connection].discard(producer_group)
            self._remove_producer(connection, producer_group)

    def closed(self, connection: Connection) -> None:
        """Take out everything that was behind a connection that is no more."""
        for group in self._produces.pop(connection, ()):
            self._remove_producer(connection, group)
        for group in self._consumes.pop(connection, ()):
            self._remove_consumer(connection, group)

    def expire(self) -> None:
        """Close the connections whose clients have not sent a heartbeat for too long."""
        oldest_s = self._clock.monotonic_s() - EXPIRY_S
        members = [group.members for group in self.consumers.values()]
        silent = {
            client.connection
            for clients in (*members, *self.producers.values())
            for client in clients.values()
            if client.seen_s < oldest_s
        }
        for connection in silent:
            LOGGER.info("client expired peer=%s:%d", *connection.peer)
            self.closed(connection)
            connection.close("no heartbeat for two minutes")

    def _group(self, data: ConsumerData) -> ConsumerGroup:
        group = self.consumers.setdefault(data.group, ConsumerGroup(data.group))
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        return group

    def _enter_consumer(self, client: Client, group: ConsumerGroup) -> bool:
        self._heard(client)
        self._consumes.setdefault(client.connection, set()).add(group.name)
        return group.enter(client)

    def _heard(self, client: Client) -> None:
        client.seen_s, client.seen_ms = self._clock.monotonic_s(), self._clock.wall_ms()

    def _remove_producer(self, connection: Connection, group: str) -> None:
        members = self.producers[group]
        client = members.pop(connection)
        if not self._produces.get(connection) and self._heard_at(client) is connection:
            del self._producers[client.client_id]
        if not members:
            del self.producers[group]

    def _heard_at(self, client: Client) -> Connection | None:
        known = self._producers.get(client.client_id)
        return None if known is None else known.connection

    def _remove_consumer(self, connection: Connection, name: str) -> None:
        group = self.consumers[name]
        group.remove(connection)
        if group.members:
            self.notices.changed(name)
        else:
            del self.consumers[name]
            for listener in self.on_subscribe:
                listener(name, ())
            self._tell(name)

    def _tell(self, group: str) -> None:
        for listener in self.on_change:
            listener(group)
