from collections.abc import Callable, Iterable
from typing import Any, Final

SLOT_S: Final[float]

class Held:
    request: Any
    connection: Any
    queue: tuple[str, int]
    queue_offset: int
    until_s: float
    again: Callable[[int], Any]
    shortcut: Callable[[int], bytes | None]
    def __init__(
        self,
        request: Any,
        topic: str,
        queue_id: int,
        queue_offset: int,
        until_s: float,
        again: Callable[[int], Any],
        shortcut: Callable[[int], bytes | None],
    ) -> None: ...

class HeldTable:
    count: int
    queues: dict[tuple[str, int], dict[Held, None]]
    slots: dict[int, dict[Held, None]]
    connections: dict[Any, dict[Held, None]]
    woken: dict[Held, None]
    ending: dict[Held, None]
    unseen: set[tuple[str, int]]
    is_watched_by_others: Callable[[str, int], bool]
    def __init__(
        self, queue_of: Callable[[str, int], Any], *, count_max: int, connection_max: int
    ) -> None: ...
    def __len__(self) -> int: ...
    def add(self, held: Held) -> bool: ...
    def remove(self, held: Held) -> None: ...
    def answer(self, queues: Iterable[tuple[str, int]], most: int) -> None: ...
    def connection_closed(self, connection: Any) -> None: ...
