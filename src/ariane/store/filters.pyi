from typing import Any

from ariane.kernel.log import Log
from ariane.kernel.queue import Queue

FALSE: int
TRUE: int
UNKNOWABLE: int
BROKEN: int

class Filter:
    def __init__(self, names: list[bytes], nodes: list[tuple[Any, ...]]) -> None: ...
    def accepts(self, properties: bytes) -> bool: ...
    def evaluate(self, properties: bytes) -> int: ...
    def count(self, properties: bytes, times: int) -> int: ...

def read(
    log: Log,
    queue: Queue,
    first: int,
    filter: Filter,
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
