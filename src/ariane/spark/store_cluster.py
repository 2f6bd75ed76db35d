"""A cluster without brokers: the files of one or more stores say which queues there are."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ariane.errors import ConfigError
from ariane.spark.bytes.contract import QueueBounds, StoreMetadata
from ariane.spark.offsets import Queue
from ariane.spark.options import Selection
from ariane.spark.survey import Survey, assigned
from ariane.topics import is_system_topic


class StoreCluster:
    """Stores on disk that this process can read."""

    def __init__(self, stores: Sequence[StoreMetadata]) -> None:
        self._stores = {store.broker: store for store in stores}

    def survey(
        self, selection: Selection, *, known: Collection[Queue] = (), may_miss: bool = False
    ) -> Survey:
        """The queues chosen; all brokers are here, so none is away."""
        read_before = {queue.topic for queue in known}
        layout: dict[Queue, QueueBounds] = {}
        for topic in self._topics(selection):
            queues = self._queues(topic)
            if not queues and topic not in read_before and not may_miss:
                raise ConfigError(
                    f"topic {topic!r} has no queue in {', '.join(sorted(self._stores))}; is it "
                    "the right storePath?"
                )
            layout |= {queue: self._of(queue).bounds(topic, queue.queue_id) for queue in queues}
        if selection.queues is not None:
            layout = assigned(selection.queues, layout, selection.queues if may_miss else known)
        return Survey(dict(sorted(layout.items())))

    def offsets_at(self, times: Mapping[Queue, int]) -> dict[Queue, int]:
        """The first offset stored at or after a moment (ms); the queue's end when there is none."""
        return {
            queue: self._of(queue).offset_at(queue.topic, queue.queue_id, moment_ms)
            for queue, moment_ms in times.items()
        }

    def oldest_ms(self, queues: Collection[Queue]) -> dict[Queue, int]:
        """None: a store that is only read does not lose its topics."""
        return {}

    def record_bytes(self, ranges: Mapping[Queue, tuple[int, int]]) -> dict[Queue, float]:
        """How large the messages of each range are on average."""
        return {
            queue: self._of(queue).mean_record_bytes(queue.topic, queue.queue_id, first, end)
            for queue, (first, end) in ranges.items()
        }

    def mirror(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Refused: files are only read."""
        raise ConfigError(
            f"the progress of group {group!r} is kept by brokers; give namesrv beside storePath"
        )

    def close(self) -> None:
        """Nothing is open."""

    def _of(self, queue: Queue) -> StoreMetadata:
        return self._stores[queue.broker]

    def _topics(self, selection: Selection) -> list[str]:
        if selection.queues is not None:
            return sorted({queue.topic for queue in selection.queues})
        if selection.pattern is None:
            return list(selection.topics)
        topics = {topic for store in self._stores.values() for topic in store.topics()}
        return selection.among({topic for topic in topics if not is_system_topic(topic)})

    def _queues(self, topic: str) -> list[Queue]:
        return [
            Queue(topic, broker, queue_id)
            for broker, store in sorted(self._stores.items())
            for queue_id in store.queues(topic)
        ]
