"""Which messages groups want by expression: `config/consumerFilter.json`, and how long it counts.

A group's filter comes with its heartbeats and is newest by the version its client gave it. When
the last member leaves, or drops the topic, the filter is dead: still there for who comes back, gone
after a day. After a start all of them are dead until somebody comes.

Expressions are compiled by the heartbeat that brings them, so that a wrong one is in the log at
once. But one heartbeat may bring thousands, and beyond a few each waits for the first pull that
asks for it. A wrong one is kept, to tell its pulls what is wrong, and is never saved.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from ariane.broker.filters import TAG_TYPES, MessageFilter, compile_expression, of_expression
from ariane.broker.filters.bloom import BIT_COUNT, bit_positions
from ariane.broker.persistence import SavedFile, Saver, load
from ariane.clock import Clock
from ariane.codes import ResponseCode
from ariane.disk import Disk
from ariane.errors import BadFilter, RequestRejected
from ariane.protocol import fastjson
from ariane.protocol.bodies import SubscriptionData
from ariane.protocol.bodies.filters import (
    BloomFilterData,
    ConsumerFilterData,
    ConsumerFilters,
    TopicFilters,
)
from ariane.store.filters import Filter

LOGGER: Final = logging.getLogger("ariane.broker")

FILTERS_PATH: Final = "config/consumerFilter.json"
DEAD_MS_MAX: Final = 24 * 3_600_000
LOADED_DEAD_MS: Final = 30_000  # a filter found at the start counts as dead since then
FILTER_COUNT_MAX: Final = 10_000
EXPRESSION_BYTES_MAX: Final = 2 << 20  # of all filters together
AT_ONCE_BYTES_MAX: Final = 4 << 10  # of expressions that one heartbeat has compiled: some 15 ms
REQUEST_FILTER_COUNT_MAX: Final = 64  # compiled for pulls that bring their own, and kept

Key = tuple[str, str]  # topic, group


@dataclass(slots=True)
class ConsumerFilter:
    """One group's filter on one topic."""

    topic: str
    group: str
    expression: str
    expression_type: str
    version: int  # as its client counts, in milliseconds
    born_ms: int
    dead_ms: int = 0
    is_sound: bool = False  # known to compile
    program: Filter | None = None  # once it has been compiled
    fault: str = ""  # what is wrong with it

    @property
    def is_dead(self) -> bool:
        """Whether nobody of the group is here who wants it."""
        return self.dead_ms >= self.born_ms

    def data(self) -> ConsumerFilterData:
        """The filter as it is saved and shown."""
        positions = bit_positions(self.topic, self.group)
        return ConsumerFilterData(
            bloom=BloomFilterData(bit_count=BIT_COUNT, bit_positions=positions),
            born_ms=self.born_ms,
            client_version=self.version,
            group=self.group,
            is_dead=self.is_dead,
            dead_ms=self.dead_ms,
            expression=self.expression,
            expression_type=self.expression_type,
            topic=self.topic,
        )


class FilterTable:
    """(topic, group) -> filter, for those that filter by expression."""

    def __init__(self, clock: Clock, saver: Saver) -> None:
        self.file = SavedFile(FILTERS_PATH, self._encode, saver)
        self._clock = clock
        self._filters: dict[Key, ConsumerFilter] = {}
        self._groups: dict[str, set[str]] = {}  # group -> topics
        self._dead: dict[Key, ConsumerFilter] = {}  # who died first, first
        self._byte_count = 0
        self._requested: OrderedDict[tuple[str, str | None], MessageFilter] = OrderedDict()

    def __iter__(self) -> Iterator[ConsumerFilter]:
        return iter(self._filters.values())

    def get(self, topic: str, group: str) -> ConsumerFilter | None:
        """A group's filter on a topic, dead or alive, if there is one."""
        return self._filters.get((topic, group))

    def of_request(self, expression: str, expression_type: str | None) -> MessageFilter:
        """The filter a request brings along; raises BadFilter."""
        if expression_type in TAG_TYPES:
            return of_expression(expression, expression_type)
        key = (expression, expression_type)
        found = self._requested.get(key)
        if found is None:
            found = self._requested[key] = of_expression(expression, expression_type)
            if len(self._requested) > REQUEST_FILTER_COUNT_MAX:
                self._requested.popitem(last=False)
        self._requested.move_to_end(key)
        return found

    def of_group(self, topic: str, group: str, version: int) -> MessageFilter:
        """The filter a group has registered, no older than `version`; or RequestRejected."""
        found = self._filters.get((topic, group))
        if found is None:
            raise RequestRejected(
                "The broker's consumer filter data is not exist!Your expression may be wrong!",
                ResponseCode.FILTER_DATA_NOT_EXIST,
            )
        if found.version < version:
            raise RequestRejected(
                "the consumer's consumer filter data not latest",
                ResponseCode.FILTER_DATA_NOT_LATEST,
            )
        return MessageFilter(expression=self._program(found))

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Take over what a member of a group subscribes to now; nothing when none is left."""
        topics = set()
        bytes_left = AT_ONCE_BYTES_MAX
        for data in subscriptions:
            topics.add(data.topic)
            if data.expression_type not in TAG_TYPES and data.expression:
                self._put(group, data)
                found = self._filters.get((data.topic, group))
                if found is not None and found.program is None and not found.fault:
                    bytes_left -= len(found.expression)
                    if bytes_left >= 0:
                        self._compile(found)
        for topic in self._groups.get(group, set()) - topics:
            self._bury(self._filters[topic, group])

    def delete_topic(self, topic: str) -> None:
        """Forget everybody's filter on a topic that is no more."""
        for key in [key for key in self._filters if key[0] == topic]:
            self._remove(self._filters[key])

    def delete_group(self, group: str) -> None:
        """Forget a group's filters."""
        for topic in list(self._groups.get(group, ())):
            self._remove(self._filters[topic, group])

    def load(self, disk: Disk) -> None:
        """Take over what is on the disk; raises CorruptFile when it cannot be read."""
        saved = load(disk, FILTERS_PATH, ConsumerFilters)
        now_ms = self._clock.wall_ms()
        for topic in saved.topics.values() if saved else ():
            for data in topic.groups.values():
                dead_ms = data.dead_ms or max(now_ms - LOADED_DEAD_MS, data.born_ms)
                self._add(
                    ConsumerFilter(
                        data.topic,
                        data.group,
                        data.expression,
                        data.expression_type,
                        data.client_version,
                        data.born_ms,
                        dead_ms,
                        is_sound=True,
                    )
                )

    def save(self) -> None:
        """Forget who is dead too long, and write the table if it has changed."""
        oldest_ms = self._clock.wall_ms() - DEAD_MS_MAX
        for found in [found for found in self._dead.values() if found.dead_ms <= oldest_ms]:
            self._remove(found)
        self.file.save()

    def save_now(self) -> None:
        """The last save before a stop."""
        self.file.save_now()

    def _program(self, found: ConsumerFilter) -> Filter:
        if found.program is None and not found.fault:
            self._compile(found)
        if found.program is None:
            raise RequestRejected(
                f"the filter expression of group {found.group} on {found.topic} is wrong: "
                f"{found.fault}",
                ResponseCode.FILTER_DATA_NOT_EXIST,
            )
        return found.program

    def _compile(self, found: ConsumerFilter) -> None:
        try:
            found.program = compile_expression(found.expression, found.expression_type)
        except BadFilter as refusal:
            LOGGER.warning(
                "filter refused group=%s topic=%s reason=%s", found.group, found.topic, refusal
            )
            found.fault = str(refusal)
            found.is_sound = False
            self.file.mark()
            return
        if not found.is_sound:
            found.is_sound = True
            self.file.mark()

    def _put(self, group: str, data: SubscriptionData) -> None:
        old = self._filters.get((data.topic, group))
        wanted = (data.expression, data.expression_type)
        if old is not None and (old.expression, old.expression_type) == wanted:
            if data.version > old.version or old.is_dead:
                old.version = max(data.version, old.version)
                old.dead_ms = 0
                self._dead.pop((data.topic, group), None)
                self.file.mark()
            return
        if old is not None:
            # A dead one gives way whatever its version: a client's clock may have been set back.
            if data.version <= old.version and not old.is_dead:
                return
            self._remove(old)
        now_ms = self._clock.wall_ms()
        self._add(ConsumerFilter(data.topic, group, *wanted, data.version, now_ms))

    def _add(self, new: ConsumerFilter) -> None:
        size = len(new.expression.encode(errors="replace"))
        while self._is_full(size) and self._dead:
            self._remove(next(iter(self._dead.values())))
        if self._is_full(size):
            LOGGER.warning("filter not taken, too many group=%s topic=%s", new.group, new.topic)
            return
        self._filters[new.topic, new.group] = new
        if new.is_dead:
            self._dead[new.topic, new.group] = new
        self._groups.setdefault(new.group, set()).add(new.topic)
        self._byte_count += size
        self.file.mark()

    def _is_full(self, size: int) -> bool:
        is_crowded = len(self._filters) >= FILTER_COUNT_MAX
        return is_crowded or self._byte_count + size > EXPRESSION_BYTES_MAX

    def _bury(self, found: ConsumerFilter) -> None:
        if not found.is_dead:
            found.dead_ms = max(self._clock.wall_ms(), found.born_ms)
            self._dead[found.topic, found.group] = found
            self.file.mark()

    def _remove(self, found: ConsumerFilter) -> None:
        del self._filters[found.topic, found.group]
        self._dead.pop((found.topic, found.group), None)
        topics = self._groups[found.group]
        topics.discard(found.topic)
        if not topics:
            del self._groups[found.group]
        self._byte_count -= len(found.expression.encode(errors="replace"))
        self.file.mark()

    def _encode(self) -> bytes:
        topics: dict[str, TopicFilters] = {}
        for found in self:
            if found.is_sound:
                entry = topics.setdefault(found.topic, TopicFilters(topic=found.topic))
                entry.groups[found.group] = found.data()
        return fastjson.dumps_pretty(ConsumerFilters(topics=topics))
