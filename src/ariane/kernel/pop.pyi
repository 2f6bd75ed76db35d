from collections.abc import Callable, Sequence

from ariane.kernel.log import Log
from ariane.kernel.queue import Queue
from ariane.kernel.reading import Tags

class Checkpoint:
    topic: str
    group: str
    queue_id: int
    first: int
    popped_ms: int
    invisible_ms: int
    count: int
    settled: int
    attempts: int
    revive_queue_id: int
    journal_offset: int
    log_offset: int
    def __init__(
        self,
        key: tuple[str, str, int, int, int],
        invisible_ms: int,
        gaps: Sequence[int],
        *,
        settled: int = 0,
        attempts: int = 0,
        revive_queue_id: int = 0,
        journal_offset: int = -1,
        log_offset: int = -1,
    ) -> None: ...
    @property
    def key(self) -> tuple[str, str, int, int, int]: ...
    @property
    def gaps(self) -> tuple[int, ...]: ...
    @property
    def due_ms(self) -> int: ...
    @property
    def is_closed(self) -> bool: ...
    def bit_of(self, queue_offset: int) -> int: ...
    def open_offsets(self) -> list[int]: ...
    def close(self) -> None: ...

class PopGrant:
    topic: str
    group: str
    queues: list[Queue]
    message_count: int
    byte_count: int
    def __init__(
        self,
        topic: str,
        group: str,
        queues: list[Queue],
        offsets: dict[int, int] | None = None,
        tags: Tags | None = None,
        retry_queue: Queue | None = None,
        retry_offsets: dict[int, int] | None = None,
    ) -> None: ...

class PopLane:
    pops: dict[bytes, PopGrant]
    acks: dict[bytes, PopGrant]
    turn: int
    hot_count: int
    def __init__(
        self,
        log: Log,
        *,
        open: dict[tuple[str, str, int, int, int], Checkpoint],
        revive_queues: list[Queue],
        known_ends: list[int],
        on_lent: Callable[[Checkpoint], None],
        revive_topic: bytes,
        host: bytes,
        broker_name: bytes,
    ) -> None: ...
    def configure(
        self,
        *,
        bytes_max: int,
        memory_count_max: int,
        memory_bytes_max: int,
        disk_count_max: int,
        disk_bytes_max: int,
        memory_window: int,
        scan_count_max: int,
    ) -> None: ...
    def forget(self) -> None: ...

def pop_key_of(group: bytes, topic: bytes, expression: bytes) -> bytes: ...
def ack_key_of(group: bytes, topic: bytes) -> bytes: ...
