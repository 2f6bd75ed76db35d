"""How a producer sends: set once for a client, changed for a producer where need be."""

from __future__ import annotations

from typing import Final, TypedDict

import msgspec

from ariane.errors import ClientError
from ariane.protocol.compression import COMPRESSIONS, Compression

SEND_TIMEOUT_S: Final = 3.0
BATCH_BYTES_MAX: Final = 256 << 10  # a broker takes 4 MiB
BATCH_COUNT_MAX: Final = 1_000


class SendOptions(TypedDict, total=False):
    """What may be set; each is a field of `SendSettings`."""

    timeout: float
    retries: int
    compression: Compression | None
    compress_from_bytes: int
    linger_ms: float | None
    batch_bytes_max: int
    batch_count_max: int
    trace: bool


class SendSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How sends are made."""

    timeout: float = SEND_TIMEOUT_S  # seconds, for all attempts of a send together
    retries: int = 2  # further attempts after one that failed; a busy broker is asked until the end
    compression: Compression | None = "zlib"
    compress_from_bytes: int = 4_096
    linger_ms: float | None = None  # None: each send is a request; else they are gathered so long
    batch_bytes_max: int = BATCH_BYTES_MAX
    batch_count_max: int = BATCH_COUNT_MAX
    trace: bool = False  # tell RocketMQ's trace topic of every send, and every call of a handler

    def __post_init__(self) -> None:
        if not self.timeout > 0:
            raise ClientError(f"timeout={self.timeout}: seconds, more than 0")
        if self.retries < 0:
            raise ClientError(f"retries={self.retries}: 0 or more")
        if self.compression is not None and self.compression not in COMPRESSIONS:
            known = ", ".join(COMPRESSIONS)
            raise ClientError(f"compression={self.compression!r}: one of {known}, or None")
        if self.linger_ms is not None and not self.linger_ms >= 0:
            raise ClientError(f"linger_ms={self.linger_ms}: 0 or more, or None for no batches")
        if self.batch_bytes_max < 1 or self.batch_count_max < 1:
            raise ClientError("a batch holds at least one message of one byte")
