from ariane.kernel.index import Index
from ariane.kernel.log import Log
from ariane.kernel.queue import Queue

def look(body: bytes, *, row_bytes_max: int, properties_bytes_max: int) -> tuple[int, int]: ...
def head(log: Log, log_offset: int) -> tuple[int, int, bytes] | None: ...
def row(log: Log, chunk_offset: int, position: int) -> tuple[int, bytes, bytes, int]: ...
def birth(log: Log, chunk_offset: int) -> tuple[int, bytes]: ...
def measure(
    log: Log,
    queue: Queue,
    chunk_offset: int,
    position: int,
    *,
    rows_max: int,
    bytes_max: int,
    keys_max: int,
) -> tuple[int, int, int]: ...
def place_rows(
    log: Log,
    queue: Queue,
    index: Index | None,
    chunk_offset: int,
    position: int,
    rows: int,
    *,
    now_ms: int,
) -> int: ...
def rows_behind(
    log: Log, log_offset: int, chunk_offset: int, position: int, rows: int
) -> tuple[int, int]: ...
