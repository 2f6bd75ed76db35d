from collections.abc import Iterable

from ariane.kernel.log import Log
from ariane.kernel.queue import Queue

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
def commits_between(log: Log, first: int, end: int) -> list[tuple[int, int]]: ...
def end_below(log: Log, queue: Queue, log_offset: int) -> int: ...
