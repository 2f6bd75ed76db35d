from ariane.kernel.log import Log
from ariane.kernel.queue import Queue
from ariane.kernel.reading import Tags

class BulkRead:
    next_offset: int
    count: int
    byte_count: int
    def __init__(
        self,
        log: Log,
        queue: Queue,
        first: int,
        end: int,
        *,
        bytes_max: int,
        tags: Tags | None = None,
    ) -> None: ...
    def find(self) -> None: ...
    def frame(self, head: bytes) -> bytes: ...
