from collections.abc import Callable

class Channel:
    descriptor: int
    is_direct: bool
    on_rest: Callable[[bytes], None]
    def __init__(
        self,
        descriptor: int,
        on_rest: Callable[[bytes], None],
        on_end: Callable[[int], None],
    ) -> None: ...
    def write(self, data: bytes) -> None: ...
