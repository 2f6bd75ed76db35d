from collections.abc import Callable
from typing import Any

from ariane.kernel.log import Index, Log, Maps, Queue

DONE: int
MORE: int
UNIT_FILE_NEEDED: int
UNIT_ROOM_NEEDED: int
SLOT_ROOM_NEEDED: int
SLOT_TAKEN: int
QUEUE_NEEDED: int
LATE_ARE_MANY: int
wheel_chunk_bytes: int

class Wheel:
    slot_count: int
    precision_ms: int
    def __init__(self, buffer: Any, slot_count: int, precision_ms: int) -> None: ...
    def release(self) -> None: ...
    def chunk_reserved(self, chunk: int) -> None: ...
    def slot(self, time_ms: int) -> tuple[int, int, int] | None: ...
    def oldest_ms(self) -> int | None: ...

class TimerLog(Maps):
    end: int
    reserved_end: int
    def __init__(self, file_bytes: int) -> None: ...
    @property
    def last_in_file(self) -> int: ...
    def unit(self, position: int) -> tuple[int, int, int, int, int, int] | None: ...
    def before(self, position: int) -> int: ...
    def after(self, position: int) -> int: ...
    def place_of(self, position: int) -> int: ...
    def seal(self) -> None: ...

class Target:
    queue: Queue
    message_count: int
    byte_count: int
    def __init__(self, queue: Queue) -> None: ...

class Clockwork:
    log: Log
    queue: Queue
    wheel: Wheel
    units: TimerLog
    window_slots: int
    next_offset: int
    read_ms: int
    is_open: bool
    pending: int
    taken_end: int
    delivered_ms: int
    units_end: int
    taken: int
    delivered: int
    deleted: int
    lost: int
    wanted_chunk: int
    def __init__(
        self,
        log: Log,
        queue: Queue,
        wheel: Wheel,
        units: TimerLog,
        *,
        window_slots: int,
        read_ms: int,
        next_offset: int,
    ) -> None: ...
    @property
    def safe_offset(self) -> int: ...
    @property
    def done_ms(self) -> int: ...
    @property
    def next_ms(self) -> int: ...
    @property
    def ready_count(self) -> int: ...
    def count_at(self, time_ms: int) -> int: ...
    def take(self, now_ms: int, count_max: int) -> int: ...
    def collect(self, now_ms: int, count_max: int) -> int: ...
    def finish(self) -> None: ...
    def deliver(
        self,
        now_ms: int,
        index: Index | None,
        queue_of: Callable[[bytes, int], Queue | None],
        targets: dict[tuple[bytes, int], Target],
        count_max: int,
        bytes_max: int,
    ) -> int: ...
    def first_message(
        self,
    ) -> tuple[bytes, int, bytes, bytes, bytes, int, int, int, int] | None: ...
    def drop(self, was_delivered: bool) -> None: ...
    def restore(self, cut: int) -> bool: ...
    def relink(self, first: int, end: int) -> None: ...
