from collections.abc import Callable, Iterable
from typing import Any

from ariane.kernel.index import Index
from ariane.kernel.maps import Maps
from ariane.kernel.queue import Queue

SEGMENT_NEEDED: int
QUEUE_ROOM_NEEDED: int
INDEX_ROOM_NEEDED: int
RECORD_TOO_LARGE: int
MEMORY_NEEDED: int
RECORD_NOT_STORED: int

class Log(Maps):
    visible: int
    last_store_ms: int
    record_bytes_max: int
    @property
    def end(self) -> int: ...
    @property
    def stored(self) -> int: ...
    @property
    def fault(self) -> int: ...
    def __init__(
        self,
        segment_bytes: int,
        store_host: bytes,
        *,
        delays_ms: Iterable[int] = (),
        record_bytes_max: int = 0,
    ) -> None: ...
    @property
    def free_bytes(self) -> int: ...
    def write_by(self, descriptor: int) -> None: ...
    def begin_at(self, log_offset: int) -> None: ...
    def store(self) -> bool: ...
    def stage(self, buffer: Any) -> None: ...
    def seal(self) -> None: ...
    def append(
        self,
        queue: Queue,
        index: Index | None,
        body: bytes,
        properties: bytes,
        *,
        flag: int,
        system_flag: int,
        born_ms: int,
        born_host: bytes,
        reconsume_times: int,
        prepared_offset: int,
        now_ms: int,
    ) -> int: ...
    def record(self, log_offset: int, end: int) -> bytes | None: ...
    def store_ms_of(self, log_offset: int) -> int: ...
    def visible_end(self, queue: Queue) -> int: ...
    def end_below(self, queue: Queue, log_offset: int) -> int: ...
    def check(self, log_offset: int, end: int, check_crc: bool = True) -> int: ...

class Tags:
    def __init__(self, codes: Iterable[int]) -> None: ...

def read(
    log: Log,
    queue: Queue,
    first: int,
    tags: Tags | None,
    *,
    count_max: int,
    bytes_max: int,
    memory_count_max: int,
    memory_bytes_max: int,
    disk_count_max: int,
    disk_bytes_max: int,
    memory_window: int,
    scan_count_max: int,
) -> tuple[bytes, int, int]: ...
def scan(
    log: Log,
    first: int,
    *,
    check_crc: bool,
    queue_of: Callable[[bytes, int], Queue | None],
    make_room: Callable[[Queue, int], bool],
    index_of: Callable[[int], Index | None],
    index_from: int,
    end: int = ...,
) -> tuple[int, int, int]: ...
