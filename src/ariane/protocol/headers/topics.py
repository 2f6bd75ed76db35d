"""Headers of topic administration."""

from __future__ import annotations

from msgspec import field

from ariane.protocol.headers import Header, Int32


class TopicHeader(Header, frozen=True, kw_only=True):
    """One topic: 105, 202, 215, 217, 300, 351."""

    topic: str
    accept_standard_json_only: bool | None = field(name="acceptStandardJsonOnly", default=None)


class CreateTopicHeader(Header, frozen=True, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC (17)."""

    topic: str
    default_topic: str = field(name="defaultTopic", default="")
    read_queue_count: Int32 = field(name="readQueueNums")
    write_queue_count: Int32 = field(name="writeQueueNums")
    permission: Int32 = field(name="perm")
    filter_type: str = field(name="topicFilterType", default="SINGLE_TAG")
    system_flag: Int32 | None = field(name="topicSysFlag", default=None)
    is_ordered: bool = field(name="order", default=False)
    attributes: str | None = None  # "+key=value,-key"


class AllTopicsHeader(Header, frozen=True, kw_only=True):
    """GET_ALL_TOPIC_CONFIG (21); the three fields ask for one page."""

    first: Int32 | None = field(name="topicSeq", default=None)
    count_max: Int32 | None = field(name="maxTopicNum", default=None)
    data_version: str | None = field(name="dataVersion", default=None)
