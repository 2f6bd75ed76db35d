"""The blocking twin of `Admin`."""

from __future__ import annotations

from ariane.client import admin
from ariane.client.admin import FOREVER_MS, QUEUE_COUNT, MessageType, QueueStats
from ariane.client.loop_thread import LoopThread
from ariane.client.routes import Address, TopicRoute
from ariane.client.tracking import Track
from ariane.codes import Permission
from ariane.protocol.bodies import ClusterInfo
from ariane.protocol.message import StoredMessage


class Admin:
    """The blocking twin of `ariane.client.Admin`."""

    def __init__(self, twin: admin.Admin, thread: LoopThread) -> None:
        self._twin = twin
        self._thread = thread

    def cluster(self) -> ClusterInfo:
        """All brokers that a name server knows, and the clusters they form."""
        return self._thread.run(self._twin.cluster())

    def broker_facts(self, address: Address) -> dict[str, str]:
        """What a broker tells of itself."""
        return self._thread.run(self._twin.broker_facts(address))

    def topics(self) -> list[str]:
        """The names of all topics, sorted."""
        return self._thread.run(self._twin.topics())

    def system_topics(self) -> set[str]:
        """Topics that exist for clusters and brokers rather than for users."""
        return self._thread.run(self._twin.system_topics())

    def topic_route(self, topic: str) -> TopicRoute:
        """Where the topic's queues are, asked anew."""
        return self._thread.run(self._twin.topic_route(topic))

    def create_topic(
        self,
        topic: str,
        *,
        write_queue_count: int = QUEUE_COUNT,
        read_queue_count: int | None = None,
        permission: int = Permission.READ | Permission.WRITE,
        cluster: str | None = None,
        message_type: MessageType | None = None,
    ) -> list[str]:
        """Create the topic, or change it, on every broker; returns the brokers' names.

        With a message type it takes messages of that type only; else of all, or as it did.
        """
        return self._thread.run(
            self._twin.create_topic(
                topic,
                write_queue_count=write_queue_count,
                read_queue_count=read_queue_count,
                permission=permission,
                cluster=cluster,
                message_type=message_type,
            )
        )

    def delete_topic(self, topic: str, *, cluster: str | None = None) -> list[str]:
        """Delete the topic and its messages on every broker; returns the brokers' names."""
        return self._thread.run(self._twin.delete_topic(topic, cluster=cluster))

    def topic_stats(self, topic: str) -> list[QueueStats]:
        """What each queue of the topic holds, by broker and number."""
        return self._thread.run(self._twin.topic_stats(topic))

    def message(self, offset_message_id: str) -> StoredMessage:
        """The message at the place that its offset id names."""
        return self._thread.run(self._twin.message(offset_message_id))

    def resume_transaction(self, offset_message_id: str) -> None:
        """Have a broker ask again about a message it has put into TRANS_CHECK_MAX_TIME_TOPIC."""
        self._thread.run(self._twin.resume_transaction(offset_message_id))

    def track(self, message: StoredMessage) -> list[Track]:
        """What became of the message in each group that reads its topic."""
        return self._thread.run(self._twin.track(message))

    def find(
        self,
        topic: str,
        key: str,
        *,
        count_max: int = 32,
        begin_ms: int = 0,
        end_ms: int = FOREVER_MS,
    ) -> list[StoredMessage]:
        """Messages sent with the key, oldest first."""
        return self._thread.run(
            self._twin.find(topic, key, count_max=count_max, begin_ms=begin_ms, end_ms=end_ms)
        )

    def find_by_id(self, topic: str, message_id: str) -> list[StoredMessage]:
        """The message with the id its producer gave it; more than one if it was sent again."""
        return self._thread.run(self._twin.find_by_id(topic, message_id))
