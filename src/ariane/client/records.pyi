from typing import Any, TypeVar

class Record:
    size: int
    body_crc32: int
    queue_id: int
    flag: int
    system_flag: int
    queue_offset: int
    log_offset: int
    born_at_ms: int
    stored_at_ms: int
    prepared_offset: int
    reconsume_times: int
    holder: Any
    is_started: bool
    is_done: bool
    @property
    def stored_topic(self) -> str: ...
    @property
    def stored_body(self) -> bytes: ...
    @property
    def properties(self) -> dict[str, str]: ...
    @property
    def stored_properties(self) -> bytes: ...
    @property
    def born_host_bytes(self) -> bytes: ...
    @property
    def store_host_bytes(self) -> bytes: ...
    @property
    def stored_record(self) -> bytes: ...
    def find(self, name: bytes) -> str | None: ...

R = TypeVar("R", bound=Record)

def decode(data: bytes, kind: type[R], holder: object = None) -> list[R]: ...
