"""Topics and subscription groups, kept in `config/topics.json` and `config/subscriptionGroup.json`.

Every change bumps the table's version, is written soon after (`journal.py`), and is told to
`on_change`, where the registration with the name servers and the hot lane listen. A topic's name is
its directory in the store, so no name enters a table unchecked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from ariane.broker import group_attributes, journal, pretty
from ariane.broker.persistence import JournaledFile, Saver, load
from ariane.broker.system_topics import READ_WRITE, auto_create_topic, system_topics
from ariane.broker.topic_attributes import changed_attributes, changes_of, check_attribute
from ariane.clock import Clock
from ariane.codes import Permission, ResponseCode
from ariane.config import BrokerConfig
from ariane.disk import Disk
from ariane.errors import GroupNotFound, InvalidParameter, RequestRejected, TopicNotFound
from ariane.protocol.bodies import (
    DataVersion,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicConfig,
    TopicConfigTable,
)
from ariane.topics import (
    AUTO_CREATE_TOPIC,
    RETRY_PREFIX,
    SYSTEM_GROUPS,
    dead_letter_topic_of,
    group_fault,
    is_system_group,
    is_system_topic,
    retry_topic_of,
    topic_fault,
)

LOGGER: Final = logging.getLogger("ariane.broker")

TOPICS_PATH: Final = "config/topics.json"
GROUPS_PATH: Final = "config/subscriptionGroup.json"
QUEUE_COUNT_MAX: Final = 65_536
UNWRITTEN: Final = DataVersion()  # of a table that has no file
READ_FORBIDDEN: Final = 1 << 2  # in the bits of `forbiddenTable`
MADE_UNASKED_MAX: Final = 100_000  # topics, and groups, beyond which clients make no more by need
CHANGES_KEPT: Final = 1_024


class TopicChange(msgspec.Struct, frozen=True, rename="camel"):
    """One change of the topics, as the journal keeps it."""

    data_version: DataVersion
    name: str  # none: nothing but the version changed
    entry: TopicConfig | None  # none: it was deleted


class GroupChange(msgspec.Struct, frozen=True, rename="camel"):
    """One change of the groups, as the journal keeps it."""

    data_version: DataVersion
    name: str
    entry: SubscriptionGroupConfig | None


class TableFull(RequestRejected):
    """Clients have had so much made that no more is; an administrator may still make it."""

    code = ResponseCode.NO_PERMISSION


class TopicTable:
    """Name -> configuration of every topic this broker serves."""

    def __init__(self, config: BrokerConfig, clock: Clock, saver: Saver) -> None:
        self.config = config
        self.version = DataVersion(timestamp=clock.wall_ms())
        self.on_change: list[Callable[[str], None]] = []  # told the name of what changed
        self.file = JournaledFile(TOPICS_PATH, self._encode, saver)
        self._clock = clock
        self._topics = {topic.name: topic for topic in system_topics(config)}
        self._texts = pretty.Entries()
        self._changed_at: dict[str, int] = {}  # topic -> the file's generation with its change
        self._changes_max = CHANGES_KEPT  # beyond it, changes that are saved are forgotten

    def __len__(self) -> int:
        return len(self._topics)

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(self._topics.values())

    def get(self, name: str) -> TopicConfig | None:
        """The topic, if there is one."""
        return self._topics.get(name)

    def existing(self, name: str) -> TopicConfig:
        """The topic, or TopicNotFound."""
        topic = self._topics.get(name)
        if topic is None:
            raise TopicNotFound(name)
        return topic

    def is_saved(self, name: str) -> bool:
        """Whether the topic would be there, as it is, after a crash."""
        return self._changed_at.get(name, 0) <= self.file.saved_generation

    def is_system(self, name: str) -> bool:
        """Whether the topic is the broker's own, not for users to change or delete."""
        config = self.config
        own = (config.cluster, config.name, f"{config.cluster}_REPLY_TOPIC")
        return is_system_topic(name) or name in own

    def put(self, topic: TopicConfig) -> None:
        """Create or replace a topic; raises InvalidParameter for one that cannot be served."""
        check_topic(topic)
        if self._topics.get(topic.name) == topic:
            return
        self._topics[topic.name] = topic
        self._changed(topic.name)

    def update(self, topic: TopicConfig, attribute_changes: str) -> None:
        """Create or replace a topic as an administrator asks, editing its attributes."""
        self.put(self._updated(topic, attribute_changes))

    def update_all(self, topics: Iterable[TopicConfig]) -> None:
        """Create or replace all topics, or none when one of them cannot be served."""
        wanted = [self._updated(topic, changes_of(topic.attributes)) for topic in topics]
        for topic in wanted:
            check_topic(topic)
        for topic in wanted:
            self.put(topic)

    def delete(self, name: str) -> None:
        """Forget a topic."""
        if self._topics.pop(name, None) is not None:
            self._changed(name)

    def for_send(self, name: str, *, template: str, queue_count: int) -> TopicConfig:
        """The topic a producer names, made from `template` if that is allowed; or TopicNotFound."""
        topic = self._topics.get(name)
        if topic is not None:
            return topic
        if (fault := topic_fault(name)) is not None:
            raise InvalidParameter(fault)
        model = self._topics.get(template)
        if template == AUTO_CREATE_TOPIC and not self.config.auto_create_topics:
            model = None
        if model is not None and model.permission & Permission.INHERIT:
            count = max(1, min(queue_count, model.write_queue_count))
            permission = model.permission & ~Permission.INHERIT
            return self._create(name, count, permission)
        if name.startswith(RETRY_PREFIX):
            return self._create(name, 1, READ_WRITE)
        raise TopicNotFound(name)

    def ensure_retry(self, group: SubscriptionGroupConfig) -> TopicConfig | None:
        """The group's retry topic, made so that its consumers find it; None if it wants none."""
        name = retry_topic_of(group.name)
        topic = self._topics.get(name)
        if topic is None and group.retry_queue_count > 0:
            topic = self._create(name, group.retry_queue_count, READ_WRITE)
        return topic

    def ensure_dead_letter(self, group: SubscriptionGroupConfig) -> TopicConfig:
        """The topic of what a group gave up on, made when there is first something for it."""
        name = dead_letter_topic_of(group.name)
        return self._topics.get(name) or self._create(name, 1, Permission.WRITE)

    def load(self, disk: Disk) -> None:
        """Take over what is on the disk; raises CorruptFile when it cannot be read."""
        table = load(disk, TOPICS_PATH, TopicConfigTable)
        version = UNWRITTEN if table is None else table.data_version
        for topic in () if table is None else table.topics.values():
            self._take_over(topic)
        for change in journal.changes_after(disk, TOPICS_PATH, version, TopicChange):
            version = change.data_version
            if change.entry is None:
                self._topics.pop(change.name, None)
            else:
                self._take_over(change.entry)
        if journal.exists(disk, TOPICS_PATH):
            self.file.found_journal()
        if version is UNWRITTEN:
            return
        if not self.config.auto_create_topics:
            self._topics.pop(AUTO_CREATE_TOPIC, None)  # routed, it would draw senders we refuse
        self.version = version

    def _take_over(self, topic: TopicConfig) -> None:
        try:
            check_topic(topic)
        except InvalidParameter as fault:
            LOGGER.warning("topic not loaded topic=%r reason=%s", topic.name, fault)
        else:
            self._topics[topic.name] = topic

    def table(self) -> TopicConfigTable:
        """Everything, as it is shown and registered."""
        return TopicConfigTable(data_version=self.version, topics=dict(self._topics))

    def configure(self, config: BrokerConfig) -> None:
        """Work by other settings from now on."""
        was_on, self.config = self.config.auto_create_topics, config
        if config.auto_create_topics and not was_on:
            self.put(auto_create_topic(config))
        elif was_on and not config.auto_create_topics:
            # Name servers never forget a topic of a live broker; they can learn that it is closed.
            closed = msgspec.structs.replace(auto_create_topic(config), permission=Permission.READ)
            self.put(closed)

    def touch(self) -> None:
        """Let everybody look again though no topic changed, as when the broker's rights did."""
        self._changed("")

    def _updated(self, topic: TopicConfig, attribute_changes: str) -> TopicConfig:
        if self.is_system(topic.name):
            raise InvalidParameter(f"topic {topic.name!r} is the broker's own and stays as it is")
        current = self._topics.get(topic.name)
        attributes = changed_attributes(current.attributes if current else {}, attribute_changes)
        return msgspec.structs.replace(topic, attributes=attributes)

    def _create(self, name: str, queue_count: int, permission: int) -> TopicConfig:
        if len(self._topics) >= MADE_UNASKED_MAX:
            raise TableFull(f"topic {name} is not made: there are {len(self._topics)} already")
        topic = TopicConfig(
            name=name,
            read_queue_count=queue_count,
            write_queue_count=queue_count,
            permission=permission,
        )
        LOGGER.info("topic created topic=%s queues=%d permission=%d", name, queue_count, permission)
        self.put(topic)
        return topic

    def _changed(self, name: str) -> None:
        self.version = next_version(self.version, self._clock)
        change = TopicChange(self.version, name, self._topics.get(name))
        self.file.put(journal.line_of(change))
        self._changed_at[name] = self.file.generation
        if len(self._changed_at) > self._changes_max:
            saved = self.file.saved_generation
            self._changed_at = {key: at for key, at in self._changed_at.items() if at > saved}
            self._changes_max = 2 * len(self._changed_at) + CHANGES_KEPT
        for listener in self.on_change:
            listener(name)

    def _encode(self) -> Callable[[], bytes]:
        version, topics = self.version, dict(self._topics)
        return lambda: pretty.document(
            dataVersion=pretty.member(version), topicConfigTable=self._texts.text(topics)
        )


class GroupTable:
    """Name -> configuration of every subscription group."""

    def __init__(self, config: BrokerConfig, clock: Clock, saver: Saver) -> None:
        self.config = config
        self.version = DataVersion(timestamp=clock.wall_ms())
        self.on_change: list[Callable[[str], None]] = []  # told the name of what changed
        self.file = JournaledFile(GROUPS_PATH, self._encode, saver)
        self._clock = clock
        self._groups = {name: SubscriptionGroupConfig(name=name) for name in SYSTEM_GROUPS}
        self._texts = pretty.Entries()
        self._forbidden: dict[str, dict[str, int]] = {}  # as read: group -> topic -> bits

    def __iter__(self) -> Iterator[SubscriptionGroupConfig]:
        return iter(self._groups.values())

    def __contains__(self, name: object) -> bool:
        return name in self._groups

    def get(self, name: str) -> SubscriptionGroupConfig | None:
        """The group, if there is one."""
        return self._groups.get(name)

    def for_consumer(self, name: str) -> SubscriptionGroupConfig:
        """The group a consumer names, made if that is allowed; or GroupNotFound."""
        group = self._groups.get(name)
        if group is not None:
            return group
        if not (self.config.auto_create_groups or is_system_group(name)) or group_fault(name):
            raise GroupNotFound(name)
        if len(self._groups) >= MADE_UNASKED_MAX:
            raise TableFull(f"group {name} is not made: there are {len(self._groups)} already")
        group = SubscriptionGroupConfig(name=name)
        LOGGER.info("subscription group created group=%s", name)
        self.put(group)
        return group

    def may_read(self, group: str, topic: str) -> bool:
        """Whether nobody has closed the topic to the group, as Apache's broker lets one do."""
        bits = self._forbidden.get(group, {}).get(topic, 0)
        return bits < 0 or not bits & READ_FORBIDDEN

    def put(self, group: SubscriptionGroupConfig) -> None:
        """Create or replace a group; raises InvalidParameter for one that cannot be used."""
        check_group(group)
        if self._groups.get(group.name) == group:
            return
        self._groups[group.name] = group
        self._changed(group.name)

    def update(self, groups: Sequence[SubscriptionGroupConfig]) -> None:
        """Create or replace groups as an administrator asks, editing attributes: all or none."""
        wanted = [self._updated(group) for group in groups]
        for group in wanted:
            check_group(group)
        for group in wanted:
            self.put(group)

    def delete(self, name: str) -> None:
        """Forget a group."""
        self._forbidden.pop(name, None)
        if self._groups.pop(name, None) is not None:
            self._changed(name)

    def _updated(self, group: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        current = self._groups.get(group.name)
        attributes = group_attributes.changed_attributes(
            current.attributes if current else {}, group.attributes
        )
        return msgspec.structs.replace(group, attributes=attributes)

    def load(self, disk: Disk) -> None:
        """Take over what is on the disk; raises CorruptFile when it cannot be read."""
        table = load(disk, GROUPS_PATH, SubscriptionGroupTable)
        version = UNWRITTEN if table is None else table.data_version
        if table is not None:
            self._groups |= table.groups
            self._forbidden = table.forbidden
        for change in journal.changes_after(disk, GROUPS_PATH, version, GroupChange):
            version = change.data_version
            if change.entry is None:
                self._groups.pop(change.name, None)
                self._forbidden.pop(change.name, None)
            else:
                self._groups[change.name] = change.entry
        if journal.exists(disk, GROUPS_PATH):
            self.file.found_journal()
        if version is not UNWRITTEN:
            self.version = version

    def table(self) -> SubscriptionGroupTable:
        """Everything, as it is shown and saved."""
        return SubscriptionGroupTable(
            data_version=self.version, groups=dict(self._groups), forbidden=self._forbidden
        )

    def _changed(self, name: str) -> None:
        self.version = next_version(self.version, self._clock)
        change = GroupChange(self.version, name, self._groups.get(name))
        self.file.put(journal.line_of(change))
        for listener in self.on_change:
            listener(name)

    def _encode(self) -> Callable[[], bytes]:
        version, forbidden, groups = self.version, dict(self._forbidden), dict(self._groups)
        return lambda: pretty.document(
            dataVersion=pretty.member(version),
            forbiddenTable=pretty.member(forbidden),
            subscriptionGroupTable=self._texts.text(groups),
        )


def check_topic(topic: TopicConfig) -> None:
    """Raise InvalidParameter unless the topic can be served as configured."""
    if (fault := topic_fault(topic.name)) is not None:
        raise InvalidParameter(fault)
    counts = {"readQueueNums": topic.read_queue_count, "writeQueueNums": topic.write_queue_count}
    for key, count in counts.items():
        if not 0 <= count <= QUEUE_COUNT_MAX:
            raise InvalidParameter(f"{key}={count} is not between 0 and {QUEUE_COUNT_MAX}")
    if not 0 < topic.permission < Permission.PRIORITY:
        raise InvalidParameter(f"perm={topic.permission} is not 2 (write), 4 (read) or 6 (both)")
    for key, value in topic.attributes.items():
        check_attribute(key, value)


def check_group(group: SubscriptionGroupConfig) -> None:
    """Raise InvalidParameter unless the group can be used as configured."""
    if (fault := group_fault(group.name)) is not None:
        raise InvalidParameter(fault)
    if not 0 <= group.retry_queue_count <= QUEUE_COUNT_MAX:
        raise InvalidParameter(
            f"retryQueueNums={group.retry_queue_count} is not between 0 and {QUEUE_COUNT_MAX}"
        )


def next_version(version: DataVersion, clock: Clock) -> DataVersion:
    """The version after one more change; its time never goes back."""
    return DataVersion(
        state_version=version.state_version,
        timestamp=max(clock.wall_ms(), version.timestamp),
        counter=version.counter + 1,
    )
