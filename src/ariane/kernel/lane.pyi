from collections.abc import Callable
from typing import Any

from ariane.kernel.index import Index
from ariane.kernel.log import Log
from ariane.kernel.pop import PopLane
from ariane.kernel.queue import Queue
from ariane.kernel.reading import Tags
from ariane.kernel.waiting import Waiting

class TopicSlot:
    name: bytes
    queues: list[Queue | None]
    message_count: int
    byte_count: int
    def __init__(self, name: bytes, queue_count: int) -> None: ...
    def open_queue(self, queue_id: int, queue: Queue) -> None: ...

class Grant:
    queues: list[Queue | None]
    message_count: int
    byte_count: int
    def __init__(
        self,
        queues: list[Queue | None],
        tags: Tags | None,
        subscription_version: int,
        commit: Callable[[int, int], object],
        pulled: dict[int, int],
        group_flags: int,
        topic_flags: int,
    ) -> None: ...

class Lane:
    index: Index | None
    topics: dict[bytes, TopicSlot]
    grants: dict[bytes, Grant]
    pops: PopLane | None
    waiting: Waiting
    parks: bool
    shows_at_once: bool
    tells_placed: bool
    held_bytes: int
    hot_count: int
    def __init__(
        self,
        log: Log,
        waiting: Waiting,
        *,
        decode: Callable[[bytes], Any],
        begin: Callable[[], int],
        make_room: Callable[[Queue, int], bool],
        on_placed: Callable[[], None],
        on_timed: Callable[[], None],
        on_arrivals: Callable[[list[Queue]], None],
        park: Callable[[Any, bytes, int], None],
        hold: Callable[[Any, Queue, int, int, HeldPull], None] | None,
        host: bytes,
        parks: bool,
        shows_at_once: bool,
        frame_bytes_max: int,
        header_bytes_max: int,
        held_bytes_max: int,
    ) -> None: ...
    def configure(
        self,
        *,
        suffix: bytes,
        region: bytes,
        trace_on: bool,
        message_bytes_max: int,
        bytes_max: int,
        memory_count_max: int,
        memory_bytes_max: int,
        disk_count_max: int,
        disk_bytes_max: int,
        memory_window: int,
        scan_count_max: int,
    ) -> None: ...
    def open_topic(self, slot: TopicSlot) -> None: ...
    def close_topic(self, slot: TopicSlot) -> None: ...
    def end_round(self) -> None: ...
    def forget(self) -> None: ...

class HeldPull:
    frame: bytes
    def __init__(
        self,
        lane: Lane,
        grant_key: bytes,
        opaque: int,
        is_binary: bool,
        *,
        queue_id: int,
        count_max: int,
        system_flag: int,
        version: int,
    ) -> None: ...
    def answer(self, first: int) -> bytes | None: ...

def grant_key_of(group: bytes, topic: bytes, subscription: bytes | None) -> bytes: ...
