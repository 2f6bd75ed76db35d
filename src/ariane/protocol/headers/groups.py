"""Headers about consumer and producer groups."""

from __future__ import annotations

from msgspec import field

from ariane.protocol.headers import Header, Int32


class ConsumerGroupHeader(Header, frozen=True, kw_only=True):
    """One consumer group: 38, 40, 203."""

    group: str = field(name="consumerGroup")


class ProducerGroupHeader(Header, frozen=True, kw_only=True):
    """GET_PRODUCER_CONNECTION_LIST (204)."""

    group: str = field(name="producerGroup")


class GroupHeader(Header, frozen=True, kw_only=True):
    """One group by its plain name: 303, 343, 345, 352."""

    group: str
    topic: str | None = None


class DeleteGroupHeader(Header, frozen=True, kw_only=True):
    """DELETE_SUBSCRIPTIONGROUP (207)."""

    group: str = field(name="groupName")
    clean_offset: bool = field(name="cleanOffset", default=False)


class ConsumeStatsHeader(Header, frozen=True, kw_only=True):
    """GET_CONSUME_STATS (208)."""

    group: str = field(name="consumerGroup")
    topic: str | None = None
    topics: str | None = field(name="topicList", default=None)  # joined by ";"


class AllGroupsHeader(Header, frozen=True, kw_only=True):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201); the three fields ask for one page."""

    first: Int32 | None = field(name="groupSeq", default=None)
    count_max: Int32 | None = field(name="maxGroupNum", default=None)
    data_version: str | None = field(name="dataVersion", default=None)


class CloneOffsetsHeader(Header, frozen=True, kw_only=True):
    """CLONE_GROUP_OFFSET (314)."""

    source_group: str = field(name="srcGroup")
    target_group: str = field(name="destGroup")
    topic: str | None = None
    offline: bool | None = None


class CorrectionHeader(Header, frozen=True, kw_only=True):
    """QUERY_CORRECTION_OFFSET (308)."""

    topic: str
    compare_group: str = field(name="compareGroup")
    filter_groups: str | None = field(name="filterGroups", default=None)  # joined by ","


class AllStatsHeader(Header, frozen=True, kw_only=True):
    """GET_BROKER_CONSUME_STATS (317)."""

    is_order: bool = field(name="isOrder", default=False)  # only topics that keep order
