from asyncio import Future
from collections.abc import Callable
from typing import Any

from ariane.kernel.unique_keys import KeyMaker

class Target:
    queue: Any
    broker_name: str
    address: str
    def __init__(
        self,
        queue: Any,
        address: str,
        *,
        code: int,
        group: str,
        default_topic: str,
        default_queue_count: int,
        is_batch: bool,
        flag: int,
        language: str,
        version: int,
    ) -> None: ...
    def frame(
        self,
        opaque: int,
        properties: str,
        body: bytes,
        system_flag: int,
        flag: int,
        born_ms: int,
    ) -> bytes: ...

class BatchBody:
    count: int
    @property
    def size(self) -> int: ...
    def add(self, body: bytes, properties: str, flag: int) -> None: ...
    def add_plain(self, body: bytes, keys: KeyMaker, wall_ms: int) -> str: ...
    def take(self) -> bytes: ...

class Receipts:
    def __init__(self, make: Callable[..., Any], status: object) -> None: ...
    def read(self, frame: bytes, opaque: int, target: Target, message_id: str) -> Any: ...

class Waiting:
    future: Future[Any]
    target: Target
    message_ids: str | list[str]
    born_ms: int
    asked_s: float
    deadline_s: float
    latency_s: float

class SendLane:
    frame_count: int
    heard_s: float
    @property
    def pending_count(self) -> int: ...
    @property
    def partial_bytes(self) -> int: ...
    def __init__(
        self,
        receipts: Receipts,
        *,
        decode: Callable[[memoryview], Any],
        make_future: Callable[[], Future[Any]],
        schedule: Callable[[], object],
        arm: Callable[[float], object],
        write: Callable[[bytes], None],
        now_s: Callable[[], float],
        scratch: bytearray,
        frame_bytes_max: int,
        header_bytes_max: int,
    ) -> None: ...
    def send(
        self,
        target: Target,
        message_ids: str | list[str],
        properties: str,
        body: bytes,
        system_flag: int,
        flag: int,
        born_ms: int,
        deadline_s: float,
    ) -> Future[Any]: ...
    def post(
        self,
        target: Target,
        properties: str,
        body: bytes,
        system_flag: int,
        flag: int,
        born_ms: int,
    ) -> None: ...
    def flush(self) -> None: ...
    def expire(self, now_s: float) -> list[Future[Any]]: ...
    def unanswered(self) -> list[Future[Any]]: ...
    def abandon(self) -> list[Future[Any]]: ...
    def get_buffer(self, size_hint: int) -> memoryview: ...
    def received(self, byte_count: int) -> list[Any]: ...
    def close(self) -> None: ...

class HotSends:
    def __init__(
        self,
        *,
        wall_ms: Callable[[], int],
        monotonic_s: Callable[[], float],
        body_bytes_end: int,
        pending_max: int,
    ) -> None: ...
    def learn(
        self,
        topic: str,
        targets: list[Target],
        lanes: list[SendLane | None],
        keys: KeyMaker,
        turn: int,
        *,
        parts: int = 1,
        attempt_s: float = 0.0,
    ) -> None: ...
    def knows(self, topic: str) -> bool: ...
    def forget(self) -> None: ...
    def send(
        self,
        topic: str,
        body: object,
        properties: str,
        waits: bool,
        flag: int,
        timeout_s: float,
    ) -> Waiting | None: ...
