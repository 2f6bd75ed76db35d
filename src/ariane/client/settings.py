"""How a producer sends: set once for a client, changed for a producer where need be."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final, TypedDict

import msgspec
from msgspec.structs import replace

from ariane.client.keywords import refuse_unknown
from ariane.client.messages import BODY_BYTES_MAX
from ariane.client.times import Duration, deprecated
from ariane.errors import InvalidArgument
from ariane.protocol.compression import COMPRESSIONS, Compression
from ariane.protocol.limits import FRAME_BYTES_MAX, HEADER_BYTES_MAX

SEND_TIMEOUT_S: Final = 3.0
BATCH_BYTES_MAX: Final = 256 << 10  # a broker takes 4 MiB
MESSAGE_BYTES_END: Final = FRAME_BYTES_MAX - HEADER_BYTES_MAX  # longer, and no frame holds it
BATCH_COUNT_MAX: Final = 1_000


class SendOptions(TypedDict, total=False):
    """What may be set; each is a field of `SendSettings`."""

    timeout: Duration
    attempt_timeout: Duration | None
    retries: int
    retry_another_broker_when_not_stored: bool
    message_bytes_max: int
    compression: Compression | None
    compress_from_bytes: int
    linger: Duration | None
    batch_bytes_max: int
    batch_count_max: int
    trace: bool


KEYWORDS: Final = {*SendOptions.__annotations__, "group", "topics", "clock", "random"}


class SendSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How sends are made."""

    timeout: float = SEND_TIMEOUT_S  # seconds, for all attempts of a send together
    # For one attempt; None: an even part of `timeout` where another broker could take the next one,
    # else all that is left.
    attempt_timeout: float | None = None
    retries: int = 2  # further attempts after one that failed; a busy broker is asked until the end
    # Also after an answer that the flush or the replica was late: the message is stored there
    # already, and then elsewhere once more.
    retry_another_broker_when_not_stored: bool = False
    message_bytes_max: int = BODY_BYTES_MAX  # of a body or a batch; brokers: maxMessageSize
    compression: Compression | None = "zlib"
    compress_from_bytes: int = 4_096
    linger: float | None = None  # None: each send is a request; else they are gathered so long
    batch_bytes_max: int = BATCH_BYTES_MAX
    batch_count_max: int = BATCH_COUNT_MAX
    trace: bool = False  # tell RocketMQ's trace topic of every send, and every call of a handler

    def changed(self, options: SendOptions) -> SendSettings:
        """The same, but for these options."""
        given: dict[str, Any] = dict(options)
        if "linger_ms" in given:
            deprecated("linger_ms= is called linger= now, seconds or a timedelta")
            linger_ms = given.pop("linger_ms")
            given["linger"] = None if linger_ms is None else linger_ms / 1000
        refuse_unknown(given, KEYWORDS)
        for name in ("timeout", "attempt_timeout", "linger"):
            if isinstance(given.get(name), timedelta):
                given[name] = given[name].total_seconds()
        return replace(self, **given)

    def __post_init__(self) -> None:
        if not self.timeout > 0:
            raise InvalidArgument(f"timeout={self.timeout}: seconds, more than 0")
        if self.attempt_timeout is not None and not self.attempt_timeout > 0:
            raise InvalidArgument(f"attempt_timeout={self.attempt_timeout}: seconds, more than 0")
        if not 0 < self.message_bytes_max <= MESSAGE_BYTES_END:
            raise InvalidArgument(
                f"message_bytes_max={self.message_bytes_max}: 1 to {MESSAGE_BYTES_END:,} bytes; a"
                " frame of the protocol holds no more"
            )
        if self.retries < 0:
            raise InvalidArgument(f"retries={self.retries}: 0 or more")
        if self.compression is not None and self.compression not in COMPRESSIONS:
            known = ", ".join(COMPRESSIONS)
            raise InvalidArgument(f"compression={self.compression!r}: one of {known}, or None")
        if self.linger is not None and not self.linger >= 0:
            raise InvalidArgument(
                f"linger={self.linger}: seconds, 0 or more, or None for no batches"
            )
        if self.batch_bytes_max < 1 or self.batch_count_max < 1:
            raise InvalidArgument("a batch holds at least one message of one byte")
