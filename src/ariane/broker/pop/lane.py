"""The compiled lane of pops, told what it may do by the handlers it stands in for.

As with sends and pulls, a handler that has just carried out a pop or an acknowledgement with all
its checks grants the like of it to the lane; whatever changes what a check looked at takes every
grant back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ariane.broker.message_types import is_by_priority
from ariane.broker.pop.handles import RETRY_V1, RETRY_V2, retry_topic_of
from ariane.broker.pop.journal import Journal
from ariane.broker.pop.notes import quoted
from ariane.kernel.pop import Checkpoint, PopGrant, PopLane, ack_key_of, pop_key_of
from ariane.kernel.queue import Queue
from ariane.kernel.reading import Tags
from ariane.store.hosts import host_bytes_of
from ariane.store.store import READ_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from ariane.broker.pop.taking import Wanted
    from ariane.broker.state import BrokerState
    from ariane.protocol.bodies import TopicConfig

QUEUES_MAX: Final = 64  # of a topic that takes the lane
GRANTS_MAX: Final = 10_000


class PopGrants:
    """Grants pops and acknowledgements, and takes the grants back."""

    def __init__(
        self,
        state: BrokerState,
        journal: Journal,
        by_key: dict[tuple[str, str, int, int, int], Checkpoint],
        on_lent: Callable[[Checkpoint], None],
    ) -> None:
        self._state = state
        self._lane = PopLane(
            state.store.log,
            open=by_key,
            revive_queues=journal.queues(),
            known_ends=journal.known_ends,
            on_lent=on_lent,
            revive_topic=journal.topic.encode(),
            host=host_bytes_of(state.store_host),
            broker_name=quoted(state.config.name).encode(),
        )
        self._counted: dict[PopGrant, tuple[int, int]] = {}
        self.configure()

    def start(self) -> PopLane:
        """Follow what grants depend on from now on; the lane to hand frames to."""
        state = self._state
        state.updates.on_change.append(self.configure)
        state.stats.refresh.append(self._count)
        state.topics.on_change.append(self.forget)
        state.groups.on_change.append(self.forget)
        state.offsets.on_reset.append(lambda topic, group: self.forget(topic))
        return self._lane

    @property
    def request_count(self) -> int:
        """How many requests took the lane."""
        return self._lane.hot_count

    @property
    def turn(self) -> int:
        """How many pops have found messages; the next one looks at queues from there on."""
        return self._lane.turn

    @turn.setter
    def turn(self, turn: int) -> None:
        self._lane.turn = turn

    def configure(self) -> None:
        """Take over the broker's settings, after any of them changed."""
        self._lane.configure(bytes_max=READ_BYTES_MAX, **self._state.store.read_limits)
        self.forget()

    def forget(self, _name: str = "") -> None:
        """Something a check looked at has changed: let every check be made again."""
        self._count()
        self._counted.clear()
        self._lane.forget()

    def popped(self, wanted: Wanted, expression: str | None) -> None:
        """A pop that found messages was carried out; the next alike may take the lane."""
        state, topic, group = self._state, wanted.topic.name, wanted.group
        key = pop_key_of(group.encode(), topic.encode(), (expression or "").encode())
        if key in self._lane.pops or not self._is_plain(wanted):
            return
        retry_topic = retry_topic_of(topic, group, RETRY_V1)
        has_retries = state.topics.get(retry_topic) is not None
        tag_codes = wanted.filter.tag_codes
        self._lane.pops[key] = PopGrant(
            topic,
            group,
            self._queues(wanted.topic),
            state.offsets.offsets_of(topic, group),
            None if tag_codes is None else Tags(tag_codes),
            state.store.queue(retry_topic, 0) if has_retries else None,
            state.offsets.offsets_of(retry_topic, group) if has_retries else None,
        )

    def acknowledged(self, topic: TopicConfig, group: str) -> None:
        """An acknowledgement was carried out; the next alike may take the lane."""
        key = ack_key_of(group.encode(), topic.name.encode())
        is_small = topic.read_queue_count <= QUEUES_MAX and len(self._lane.acks) < GRANTS_MAX
        if key not in self._lane.acks and is_small:
            self._lane.acks[key] = PopGrant(topic.name, group, self._queues(topic))

    def _is_plain(self, wanted: Wanted) -> bool:
        state, topic, group = self._state, wanted.topic, wanted.group
        v1 = state.topics.get(retry_topic_of(topic.name, group, RETRY_V1))
        v2 = retry_topic_of(topic.name, group, RETRY_V2)
        return not (
            wanted.is_ordered
            or is_by_priority(topic)
            or wanted.filter.expression is not None
            or topic.read_queue_count > QUEUES_MAX
            or len(self._lane.pops) >= GRANTS_MAX
            or state.offsets.has_reset(topic.name, group)
            or (v1 is not None and v1.read_queue_count > 1)
            or state.config.retry_topics_v2
            or state.topics.get(v2) is not None
        )

    def _queues(self, topic: TopicConfig) -> list[Queue]:
        store = self._state.store
        return [store.queue(topic.name, queue_id) for queue_id in range(topic.read_queue_count)]

    def _count(self) -> None:
        """Bring what took the lane into the broker's counts."""
        for grant in self._lane.pops.values():
            messages, byte_count = self._counted.get(grant, (0, 0))
            self._counted[grant] = (grant.message_count, grant.byte_count)
            tally = self._state.stats.got_by(grant.topic, grant.group)
            tally.add(grant.message_count - messages, grant.byte_count - byte_count)
