from collections.abc import Callable

from ariane.kernel.index import Index
from ariane.kernel.log import Log
from ariane.kernel.queue import Queue
from ariane.store.wheel import TimerLog, Wheel

DONE: int
MORE: int
UNIT_FILE_NEEDED: int
UNIT_ROOM_NEEDED: int
SLOT_ROOM_NEEDED: int
SLOT_TAKEN: int
QUEUE_NEEDED: int
LATE_ARE_MANY: int

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
    def link_unit(self, position: int) -> None: ...
