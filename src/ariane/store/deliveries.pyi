from typing import Any

from ariane.kernel.index import Index
from ariane.kernel.log import Log
from ariane.kernel.queue import Queue

CAUGHT_UP: int
COUNT_REACHED: int
HANDLING_NEEDED: int

class Target:
    queue: Queue
    message_count: int
    byte_count: int
    def __init__(self, queue: Queue) -> None: ...
    def take(self) -> tuple[int, int]: ...

class Slots:
    slot_count: int
    def __init__(self, buffer: Any) -> None: ...
    def release(self) -> None: ...
    def get(self, slot: int, log_end: int) -> tuple[int, int] | None: ...
    def note(self, slot: int, next_offset: int, end: int, log_end: int) -> None: ...
    def reset(self, slot: int, next_offset: int, end: int, log_end: int) -> None: ...

def deliver(
    log: Log,
    index: Index | None,
    source: Queue,
    targets: dict[bytes, Target],
    slots: Slots,
    slot: int,
    *,
    first: int,
    stop: int,
    end: int,
    due_ms: int,
    now_ms: int,
    count_max: int,
    touched: list[Target],
) -> tuple[int, int, int]: ...
def descents(queue: Queue, first: int, end: int) -> list[int]: ...
