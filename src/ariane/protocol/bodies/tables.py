"""Configuration of topics and groups, as it is sent and as it is kept in config/*.json."""

from __future__ import annotations

import msgspec
from msgspec import field

from ariane.protocol.fastjson import JavaBody
from ariane.protocol.headers import Int32, Int64


class DataVersion(msgspec.Struct, frozen=True, kw_only=True):
    """How new a table is; equal when all three parts are."""

    counter: Int64 = 0
    state_version: Int64 = field(name="stateVersion", default=0)
    timestamp: Int64 = 0  # wall clock, milliseconds


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One topic as a broker holds it."""

    attributes: dict[str, str] = field(default_factory=dict)
    is_ordered: bool = field(name="order", default=False)
    permission: Int32 = field(name="perm", default=6)
    read_queue_count: Int32 = field(name="readQueueNums", default=16)
    filter_type: str = field(name="topicFilterType", default="SINGLE_TAG")
    name: str = field(name="topicName")
    system_flag: Int32 = field(name="topicSysFlag", default=0)
    write_queue_count: Int32 = field(name="writeQueueNums", default=16)


class TopicConfigTable(msgspec.Struct, frozen=True, kw_only=True):
    """All topics of a broker: the body of 21 and config/topics.json."""

    data_version: DataVersion = field(name="dataVersion", default_factory=DataVersion)
    topics: dict[str, TopicConfig] = field(name="topicConfigTable", default_factory=dict)


class TopicConfigList(msgspec.Struct, frozen=True, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC_LIST (18)."""

    topics: list[TopicConfig] = field(name="topicConfigList", default_factory=list)


class TopicList(JavaBody, frozen=True, kw_only=True):
    """Names of topics, and on 304 the address of some broker."""

    broker_address: str | None = field(name="brokerAddr", default=None)
    topics: list[str] = field(name="topicList", default_factory=list)


def _customized() -> dict[str, object]:
    return {"type": "CUSTOMIZED"}


class SubscriptionGroupConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One consumer group as a broker holds it."""

    attributes: dict[str, str] = field(default_factory=dict)
    broker_id: Int64 = field(name="brokerId", default=0)
    broadcast_enabled: bool = field(name="consumeBroadcastEnable", default=True)
    consume_enabled: bool = field(name="consumeEnable", default=True)
    from_min_enabled: bool = field(name="consumeFromMinEnable", default=True)
    is_orderly: bool = field(name="consumeMessageOrderly", default=False)
    consume_timeout_minutes: Int32 = field(name="consumeTimeoutMinute", default=15)
    name: str = field(name="groupName")
    retry_policy: dict[str, object] = field(name="groupRetryPolicy", default_factory=_customized)
    system_flag: Int32 = field(name="groupSysFlag", default=0)
    notify_changes: bool = field(name="notifyConsumerIdsChangedEnable", default=True)
    retry_times_max: Int32 = field(name="retryMaxTimes", default=16)
    retry_queue_count: Int32 = field(name="retryQueueNums", default=1)
    slow_broker_id: Int64 = field(name="whichBrokerWhenConsumeSlowly", default=1)


class SubscriptionGroupTable(msgspec.Struct, frozen=True, kw_only=True):
    """All groups of a broker: the body of 201 and config/subscriptionGroup.json."""

    data_version: DataVersion = field(name="dataVersion", default_factory=DataVersion)
    forbidden: dict[str, dict[str, int]] = field(name="forbiddenTable", default_factory=dict)
    groups: dict[str, SubscriptionGroupConfig] = field(
        name="subscriptionGroupTable", default_factory=dict
    )


class GroupConfigList(msgspec.Struct, frozen=True, kw_only=True):
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225)."""

    groups: list[SubscriptionGroupConfig] = field(name="groupConfigList", default_factory=list)


class ConsumerOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """config/consumerOffset.json: `topic@group` -> queue id -> consume offset."""

    data_version: DataVersion = field(name="dataVersion", default_factory=DataVersion)
    group_topics: dict[str, list[str]] = field(name="groupTopicMap", default_factory=dict)
    offsets: dict[str, dict[int, int]] = field(name="offsetTable", default_factory=dict)
    # How far members have pulled; brokers before 5.5 neither write nor miss it.
    pull_offsets: dict[str, dict[int, int]] = field(name="pullOffsetTable", default_factory=dict)


class DelayOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """config/delayOffset.json: delay level -> the first queue offset not delivered yet."""

    data_version: DataVersion = field(name="dataVersion", default_factory=DataVersion)
    offsets: dict[int, int] = field(name="offsetTable", default_factory=dict)
