from collections.abc import Callable, Iterable
from typing import Any

SEGMENT_NEEDED: int
QUEUE_ROOM_NEEDED: int
INDEX_ROOM_NEEDED: int
RECORD_TOO_LARGE: int
RECORD_NOT_STORED: int

class Maps:
    file_bytes: int
    first_position: int
    @property
    def file_count(self) -> int: ...
    @property
    def end_position(self) -> int: ...
    def add(self, position: int, buffer: Any) -> None: ...
    def drop_first(self) -> None: ...
    def drop_last(self) -> None: ...

class Log(Maps):
    end: int
    visible: int
    last_store_ms: int
    record_bytes_max: int
    fault: int
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
    def check(self, log_offset: int, end: int, check_crc: bool = True) -> int: ...

class Queue(Maps):
    topic: bytes
    queue_id: int
    end: int
    min_offset: int
    reserved_end: int
    is_waiting: bool
    def __init__(
        self, topic: bytes, queue_id: int, file_bytes: int, *, is_schedule: bool = False
    ) -> None: ...
    def settle(self) -> None: ...
    def entry(self, queue_offset: int) -> tuple[int, int, int] | None: ...
    def visible_end(self, log: Log) -> int: ...
    def pad(self, first: int, end: int) -> None: ...
    def clear(self, first: int, end: int) -> None: ...
    def end_below(self, log: Log, log_offset: int) -> int: ...
    def first_from(self, log_offset: int) -> int: ...

class Index:
    slot_count: int
    entry_count: int
    reserved_end: int
    begin_ms: int
    end_ms: int
    begin_offset: int
    end_offset: int
    def __init__(self, buffer: Any, slot_count: int, entry_count: int) -> None: ...
    @property
    def next(self) -> int: ...
    @property
    def is_full(self) -> bool: ...
    def reload(self) -> None: ...
    def release(self) -> None: ...
    def preset(self, store_ms: int, log_offset: int) -> None: ...
    def put_key(self, topic: bytes, key: bytes, log_offset: int, store_ms: int) -> bool: ...
    def query(
        self, topic: bytes, key: bytes, begin_ms: int, end_ms: int, limit: int
    ) -> list[int]: ...
    def entry(self, entry: int) -> tuple[int, int, int, int]: ...
    def repair(self, log_end: int, begin_ms: int) -> int: ...
    def cut(self, next_entry: int) -> None: ...
    def truncate(self, log_end: int) -> None: ...

class Tags:
    def __init__(self, codes: Iterable[int]) -> None: ...

def index_file_bytes(slot_count: int, entry_count: int) -> int: ...
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
) -> tuple[int, int, int]: ...
