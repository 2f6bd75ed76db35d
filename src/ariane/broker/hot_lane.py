"""The compiled lane, told what it may do by the handlers it stands in for.

Theory of operation. The lane carries out a plain send when its topic has been opened, and a pull
when it has been granted. A handler that has just carried out such a request the long way, with all
its checks, opens the topic's queue or grants the pull; so the first request of a kind is slow and
the rest are not. Whenever anything that a check looked at changes, what it allowed is forgotten
and learnt again: a changed topic is closed, every grant is taken back when a topic, a group, a
subscription or an offset is changed by others than the consumers themselves, and a changed setting
undoes everything. A pull that has been granted and stands at its queue's end is held without being
read by a handler (`unread_pull.py`).

Invariant: whatever the lane does, the handlers would have done to the byte.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from ariane.broker.filters import TAG_TYPES
from ariane.broker.handlers.pull import suspend_s
from ariane.broker.message_types import declared_type, is_by_priority
from ariane.broker.messages import own_properties
from ariane.broker.unread_pull import UnreadPull
from ariane.codes import PullFlag
from ariane.kernel.held import Held
from ariane.kernel.lane import Grant, HeldPull, Lane, TopicSlot, grant_key_of
from ariane.kernel.queue import Queue
from ariane.kernel.reading import Tags
from ariane.kernel.session import Session
from ariane.kernel.waiting import Shelf, Waiting
from ariane.protocol.command import Command, Serializer, command_of
from ariane.protocol.limits import FRAME_BYTES_MAX, HEADER_BYTES_MAX
from ariane.store.delays import delays_ms_of
from ariane.store.hosts import host_bytes_of
from ariane.store.store import READ_BYTES_MAX
from ariane.topics import SCHEDULE_TOPIC, TIMER_TOPIC, is_retry_or_dead_letter

if TYPE_CHECKING:
    from ariane.broker.handlers.pull import Access
    from ariane.broker.state import BrokerState
    from ariane.protocol.bodies import TopicConfig
    from ariane.protocol.headers.pull import PullHeader
    from ariane.remoting.connection import Connection

UNFINISHED_BYTES_MAX: Final = 256 << 20  # of incomplete frames, all connections together
CLOSED: Final = -1  # what `begin` answers while nothing may take the lane

OPENED_TOGETHER_MAX: Final = 16


class HotLane:
    """Opens topics, grants pulls, and takes both back."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        store = self._store = state.store
        self._waiting = Waiting(
            Shelf(
                SCHEDULE_TOPIC.encode(),
                len(delays_ms_of(state.store_config.delay_levels)),
                partial(store.queue, SCHEDULE_TOPIC),
            ),
            Shelf(TIMER_TOPIC.encode(), 1, partial(store.queue, TIMER_TOPIC)),
            store.timer.count_at,
        )
        self._lane = Lane(
            store.log,
            self._waiting,
            decode=command_of,
            begin=self._begin,
            make_room=store.make_room,
            on_placed=store.advance,
            on_timed=state.timer.soon,
            on_arrivals=self._arrived,
            park=self._park,
            hold=self._hold,
            host=host_bytes_of(state.store_host),
            parks=store.marks.policy.parks,
            shows_at_once=store.shows_at_once,
            frame_bytes_max=FRAME_BYTES_MAX,
            header_bytes_max=HEADER_BYTES_MAX,
            held_bytes_max=UNFINISHED_BYTES_MAX,
        )
        self._lane.pops = state.pop.lane.start()
        self._topics: dict[bytes, str] = {}  # names of topics with pulls that waited
        self._counted: dict[TopicSlot | Grant, tuple[int, int]] = {}
        self._owners: dict[Grant, tuple[str, str]] = {}
        self._is_calm = state.flow.is_calm
        self._wall_ms = state.clock.wall_ms
        self.configure()
        state.updates.on_change.append(self.configure)
        state.stats.refresh.append(self._count)
        state.topics.on_change.append(self._topic_changed)
        state.groups.on_change.append(self._take_back)
        state.clients.on_change.append(self._take_back)
        state.offsets.on_reset.append(lambda topic, _group: self._take_back(topic))

    @property
    def request_count(self) -> int:
        """How many requests took the lane."""
        return self._lane.hot_count

    def configure(self) -> None:
        """Take over the broker's settings, after any of them changed."""
        state = self._state
        suffix = own_properties(state.config).encode()
        self._waiting.configure(
            suffix=suffix,
            broker_name=state.config.name.encode(),
            is_timer_on=state.store_config.timer_enabled,
            delay_ms_max=state.store_config.timer_delay_max_s * 1000,
            precision_ms=state.store_config.timer_precision_ms,
            slot_messages_max=state.store_config.timer_slot_messages_max,
        )
        self._lane.configure(
            suffix=suffix,
            region=state.config.region.encode(),
            trace_on=state.config.trace_on,
            message_bytes_max=state.store_config.message_bytes_max,
            bytes_max=READ_BYTES_MAX,
            **state.store.read_limits,
        )
        self._forget()

    def reader_of(self, connection: Connection) -> Session:
        """What serves one connection, so that plain requests take the lane."""
        return Session(
            self._lane,
            connection,
            host_bytes_of(connection.peer),
            channel=connection.channel,
            after_round=connection.after_round,
        )

    def opened(self, topic: TopicConfig, queue_id: int) -> None:
        """A plain send to this queue was carried out; the next may take the lane."""
        lane = self._lane
        lane.index = self._state.store.index
        if (
            is_retry_or_dead_letter(topic.name)
            or is_by_priority(topic)
            or (self._state.config.checks_message_types and declared_type(topic) is not None)
            or topic.name == TIMER_TOPIC
        ):
            return  # the handlers have more to look at
        name = topic.name.encode()
        slot = lane.topics.get(name)
        if slot is None:
            count = max(topic.read_queue_count, topic.write_queue_count)
            slot = TopicSlot(name, count)
            lane.open_topic(slot)
            # What was checked holds for its other queues, too; where there are many, as they come.
            for other in range(min(topic.write_queue_count, OPENED_TOGETHER_MAX)):
                slot.open_queue(other, self._state.store.queue(topic.name, other))
        slot.open_queue(queue_id, self._state.store.queue(topic.name, queue_id))

    def granted(self, header: PullHeader, access: Access) -> None:
        """A pull that found messages was carried out; the next alike may take the lane."""
        state = self._state
        key = _grant_key_of(header)
        grant = self._lane.grants.get(key)
        if grant is None:
            offsets, topic, group = state.offsets, header.topic, header.group
            grant = self._lane.grants[key] = Grant(
                [None] * access.topic.read_queue_count,
                None if access.tag_codes is None else Tags(access.tag_codes),
                self._subscription_version(header),
                lambda queue_id, offset: offsets.commit(topic, group, queue_id, offset),
                offsets.pulled_of(topic, group),
                access.group.system_flag,
                access.topic.system_flag,
            )
            self._owners[grant] = (topic, group)
        grant.queues[header.queue_id] = state.store.queue(header.topic, header.queue_id)

    def shortcut_of(self, header: PullHeader, command: Command) -> Callable[[int], bytes | None]:
        """How the lane answers a pull that has to wait, from a queue offset on, once it may."""
        if header.expression_type not in TAG_TYPES or header.system_flag & PullFlag.CLASS_FILTER:
            return _no_shortcut
        return HeldPull(
            self._lane,
            _grant_key_of(header),
            command.opaque,
            command.serializer is Serializer.ROCKETMQ,
            queue_id=header.queue_id,
            count_max=header.count_max,
            system_flag=header.system_flag,
            version=header.subscription_version,
        ).answer

    def _park(self, connection: Connection, answers: bytes, log_offset: int) -> None:
        """Keep answers until the log is safe up to there."""
        self._state.parked.park(connection, answers, log_offset)

    def _hold(
        self,
        connection: Connection,
        queue: Queue,
        first: int,
        suspend_ms: int,
        waiting: HeldPull,
    ) -> None:
        """Keep a pull that the lane has read; a handler reads it again if it comes to that."""
        state = self._state
        request = UnreadPull(connection, waiting.frame)
        until_s = state.clock.monotonic_s() + suspend_s(suspend_ms, state)
        again = partial(request.again, state)
        topic = self._topic_of(queue)
        state.held.keep(Held(request, topic, queue.queue_id, first, until_s, again, waiting.answer))

    def _topic_of(self, queue: Queue) -> str:
        """Always the same text, so that looking it up in tables is quick."""
        name = queue.topic
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = name.decode()
        return topic

    def _subscription_version(self, header: PullHeader) -> int:
        if header.system_flag & PullFlag.SUBSCRIPTION:
            return 0
        members = self._state.clients.consumer_group(header.group)
        subscription = None if members is None else members.subscription(header.topic)
        return -1 if subscription is None else subscription.version

    def _topic_changed(self, name: str) -> None:
        """Let sends to a topic, or to all when it has no name, and every pull be checked again."""
        if not name:
            self._forget()
            return
        slot = self._lane.topics.get(name.encode())
        if slot is not None:
            self._count_slot(slot)
            self._counted.pop(slot, None)
            self._lane.close_topic(slot)
        self._take_back(name)

    def _take_back(self, _name: str) -> None:
        """Let every pull be checked again."""
        self._count_grants()
        for grant in self._owners:
            self._counted.pop(grant, None)
        self._owners.clear()
        self._lane.grants.clear()

    def _forget(self) -> None:
        """Let everything be checked again."""
        self._count()
        self._topics.clear()
        self._counted.clear()
        self._owners.clear()
        self._lane.forget()

    def _begin(self) -> int:
        """The time for what was just read, or CLOSED when the handlers must decide."""
        store = self._store
        if store.read_only_reason is None and store.disk_full_reason is None and self._is_calm():
            return self._wall_ms()
        return CLOSED

    def _arrived(self, queues: list[Queue]) -> None:
        grown = [(self._topic_of(queue), queue.queue_id) for queue in queues]
        self._state.held.answer_at_once(grown)
        for queue, (topic, queue_id) in zip(queues, grown, strict=True):
            if queue.is_waiting:  # somebody still does
                self._state.arrived(topic, queue_id)

    def _count(self) -> None:
        """Bring what took the lane into the broker's counts."""
        for slot in self._lane.topics.values():
            self._count_slot(slot)
        for shelf in (self._waiting.levels, self._waiting.times):
            messages, byte_count = shelf.take()
            if messages:
                self._state.stats.put_to(shelf.name.decode()).add(messages, byte_count)
        self._count_grants()

    def _count_slot(self, slot: TopicSlot) -> None:
        if gain := self._gain(slot):
            self._state.stats.put_to(slot.name.decode()).add(*gain)

    def _count_grants(self) -> None:
        for grant, (topic, group) in self._owners.items():
            if gain := self._gain(grant):
                self._state.stats.got_by(topic, group).add(*gain)

    def _gain(self, counted: TopicSlot | Grant) -> tuple[int, int] | None:
        """Messages and bytes since it was last asked for; None without any, as for most topics."""
        messages, byte_count = self._counted.get(counted, (0, 0))
        if counted.message_count == messages:
            return None
        self._counted[counted] = (counted.message_count, counted.byte_count)
        return counted.message_count - messages, counted.byte_count - byte_count


def _no_shortcut(_first: int) -> None:
    """The lane knows tags only."""


def _grant_key_of(header: PullHeader) -> bytes:
    has_own = header.system_flag & PullFlag.SUBSCRIPTION
    subscription = (header.subscription or "").encode() if has_own else None
    return grant_key_of(header.group.encode(), header.topic.encode(), subscription)
