from collections.abc import Callable, Iterable

from ariane.kernel.index import Index
from ariane.kernel.log import Log
from ariane.kernel.queue import Queue

def dispatch(
    log: Log,
    first: int,
    end: int = ...,
    *,
    queue_of: Callable[[bytes, int], Queue | None],
    make_room: Callable[[Queue, int], bool],
    index_of: Callable[[int], Index | None],
    index_from: int = 0,
    check_crc: bool = False,
    arrivals: list[Queue] | None = None,
) -> tuple[int, int, int]: ...
def number_tail(
    log: Log, queues: Iterable[Queue], queue_of: Callable[[bytes, int], Queue | None]
) -> None: ...
