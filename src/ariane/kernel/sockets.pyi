from collections.abc import Callable

class Channel:
    descriptor: int
    is_direct: bool
    def __init__(
        self,
        descriptor: int,
        on_rest: Callable[[bytes], None],
        on_end: Callable[[int], None],
    ) -> None: ...
    def write(self, data: bytes) -> None: ...
    def send(self, data: bytes | bytearray | memoryview) -> int: ...
    @property
    def taken_bytes(self) -> int: ...
