"""The topics that are the broker's own, with RocketMQ's names, queue counts and permissions."""

from __future__ import annotations

from typing import Final

from ariane.codes import Permission
from ariane.config import BrokerConfig
from ariane.protocol.bodies import TopicConfig
from ariane.topics import (
    AUTO_CREATE_TOPIC,
    HALF_TOPIC,
    OPERATION_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRACE_TOPIC,
)

READ_WRITE: Final = Permission.READ | Permission.WRITE
INHERITED: Final = READ_WRITE | Permission.INHERIT  # unknown topics may be made after such a one


def auto_create_topic(config: BrokerConfig) -> TopicConfig:
    """The topic that unknown topics are made after when they are first sent to."""
    return TopicConfig(
        name=AUTO_CREATE_TOPIC,
        read_queue_count=config.default_queue_count,
        write_queue_count=config.default_queue_count,
        permission=INHERITED,
    )


def system_topics(config: BrokerConfig) -> list[TopicConfig]:
    """The topics every broker has from its first start, with RocketMQ's queue counts."""

    def topic(name: str, queue_count: int, permission: int = READ_WRITE) -> TopicConfig:
        return TopicConfig(
            name=name,
            read_queue_count=queue_count,
            write_queue_count=queue_count,
            permission=permission,
        )

    topics = [
        topic("SELF_TEST_TOPIC", 1),
        topic("BenchmarkTest", 1024),
        topic(config.cluster, 16, INHERITED),
        topic(config.name, 1, INHERITED),
        topic("OFFSET_MOVED_EVENT", 1),
        topic(SCHEDULE_TOPIC, 18),
        topic(HALF_TOPIC, 1),
        topic(OPERATION_TOPIC, 1),
        topic(TIMER_TOPIC, 1),
        topic(f"rmq_sys_REVIVE_LOG_{config.cluster}", 8),
        topic(f"{config.cluster}_REPLY_TOPIC", 1),
        topic(f"rmq_sys_SYNC_BROKER_MEMBER_{config.name}", 1, Permission.INHERIT),
    ]
    if config.auto_create_topics:
        topics.append(auto_create_topic(config))
    if config.trace_topic_enabled:
        topics.append(topic(TRACE_TOPIC, 1))
    return topics
