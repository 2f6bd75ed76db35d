from collections.abc import Callable

from ariane.kernel.queue import Queue

class Shelf:
    name: bytes
    def __init__(self, name: bytes, queue_count: int, queue_of: Callable[[int], Queue]) -> None: ...
    def take(self) -> tuple[int, int]: ...
    def forget(self) -> None: ...

class Waiting:
    levels: Shelf
    times: Shelf
    def __init__(self, levels: Shelf, times: Shelf, count_at: Callable[[int], int]) -> None: ...
    def configure(
        self,
        *,
        suffix: bytes,
        broker_name: bytes,
        is_timer_on: bool,
        delay_ms_max: int,
        precision_ms: int,
        slot_messages_max: int,
    ) -> None: ...
    def forget(self) -> None: ...
