from collections.abc import Iterable
from typing import Any

class RowFault(ValueError): ...

class Texts:
    def __init__(self, validity: Any, offsets: Any, data: Any, first: int, count: int) -> None: ...

class Numbers:
    def __init__(self, validity: Any, data: Any, first: int, count: int, width: int) -> None: ...

class Pairs:
    def __init__(
        self, validity: Any, offsets: Any, names: Texts, values: Texts, first: int, count: int
    ) -> None: ...

class Names:
    def __init__(self, names: Iterable[str]) -> None: ...

class RowEncoder:
    row_count: int
    held_bytes: int
    finished: list[tuple[int, bytes, int]]
    def __init__(
        self,
        key_head: bytes,
        left_out: Names,
        *,
        chunk_bytes: int,
        held_bytes_max: int,
        body_bytes_max: int,
        late_rows_max: int,
    ) -> None: ...
    def encode(
        self,
        rows: int,
        bodies: Texts,
        *,
        table: Any,
        topics: Numbers | None = None,
        keys: Texts | None = None,
        tags: Texts | None = None,
        sharding_keys: Texts | None = None,
        properties: Pairs | None = None,
        queue_ids: Numbers | None = None,
        deliver_us: Numbers | None = None,
    ) -> None: ...
    def finish(self) -> None: ...
