"""From a send request to the message that is stored.

The client's properties are kept byte for byte; what the broker adds comes after them, always in the
same order, so that equal requests leave equal records whichever path they took.
"""

from __future__ import annotations

import struct
from typing import Final

from ariane.broker.requests import Request
from ariane.broker.state import BrokerState
from ariane.codes import RequestCode, ResponseCode, SystemFlag
from ariane.config import BrokerConfig
from ariane.errors import RequestRejected
from ariane.protocol.headers.send import SendHeader, SendHeaderV2
from ariane.protocol.message import decode_properties
from ariane.protocol.properties import UNIQUE_KEY
from ariane.store.messages import BatchEntry, NewBatch, NewMessage

SendRequest = Request[SendHeader | SendHeaderV2]

PROPERTIES_BYTES_MAX: Final = 32_767
REGION_KEY: Final = "MSG_REGION"
TRACE_KEY: Final = "TRACE_ON"
CLUSTER_KEY: Final = "CLUSTER"
TIMER_KEYS: Final = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")  # first wins
RESERVED_KEYS: Final = (REGION_KEY, TRACE_KEY, CLUSTER_KEY, "POP_CK", "__CRC32#")  # ours to set
ENTRY_HEAD: Final = struct.Struct(">iiiii")  # whole size, magic, body CRC, flag, body size
ENTRY_PROPERTIES: Final = struct.Struct(">h")  # size of the properties that follow
ADDRESS_FLAGS: Final = int(SystemFlag.BORN_HOST_IPV6 | SystemFlag.STORE_HOST_IPV6)


class MessageIllegal(RequestRejected):
    """The message breaks a rule that no retry will mend."""

    code = ResponseCode.MESSAGE_ILLEGAL


def is_batch(request: SendRequest) -> bool:
    """Whether the body holds several messages."""
    return request.header.is_batch or request.command.code == RequestCode.SEND_BATCH_MESSAGE


def stored_properties(text: str, config: BrokerConfig, unique_key: str | None = None) -> bytes:
    """The client's properties, the broker's, and a unique key for those that came without."""
    if text and not text.endswith("\x02"):
        text += "\x02"
    if any(f"{key}\x01" in text for key in RESERVED_KEYS):
        pairs = text.removesuffix("\x02").split("\x02")
        text = "".join(f"{pair}\x02" for pair in pairs if not _is_reserved(pair))
    text += own_properties(config)
    if unique_key is not None:
        text += f"{UNIQUE_KEY}\x01{unique_key}\x02"
    stored = text.encode()
    if len(stored) > PROPERTIES_BYTES_MAX:
        raise MessageIllegal(
            f"the properties take {len(stored)} bytes with the broker's own; "
            f"{PROPERTIES_BYTES_MAX} are allowed"
        )
    return stored


def own_properties(config: BrokerConfig) -> str:
    """What the broker adds to every message sent to it."""
    return (
        f"{REGION_KEY}\x01{config.region}\x02"
        f"{TRACE_KEY}\x01{'true' if config.trace_on else 'false'}\x02"
        f"{CLUSTER_KEY}\x01{config.cluster}\x02"
    )


def message_of(request: SendRequest, queue_id: int, state: BrokerState) -> NewMessage:
    """The one message of a plain send, as it will be stored."""
    header = request.header
    properties = decode_properties(header.properties or "")
    _check_body(request.body, state)
    unique_key = None if properties.get(UNIQUE_KEY) else state.unique_keys.next()
    return NewMessage(
        topic=header.topic,
        queue_id=queue_id,
        body=request.body,
        properties=stored_properties(header.properties or "", state.config, unique_key),
        flag=header.flag,
        system_flag=header.system_flag & ~ADDRESS_FLAGS,
        born_at_ms=header.born_at_ms,
        born_host=request.connection.peer,
        reconsume_times=header.reconsume_times or 0,
    )


def batch_of(request: SendRequest, queue_id: int, state: BrokerState) -> NewBatch:
    """The messages of a batch, each with its own properties as sent; all of them checked."""
    header = request.header
    _check_body(request.body, state)
    return NewBatch(
        topic=header.topic,
        queue_id=queue_id,
        entries=batch_entries(request.body),
        system_flag=header.system_flag & ~ADDRESS_FLAGS,
        born_at_ms=header.born_at_ms,
        born_host=request.connection.peer,
        reconsume_times=header.reconsume_times or 0,
    )


def _is_reserved(pair: str) -> bool:
    name, _, value = pair.partition("\x01")
    return name in RESERVED_KEYS and value != ""


def _check_body(body: bytes, state: BrokerState) -> None:
    bytes_max = state.store_config.message_bytes_max
    if not body:
        raise MessageIllegal("the message has no body")
    if len(body) > bytes_max:
        raise MessageIllegal(f"the body takes {len(body)} bytes; {bytes_max} are allowed")


def batch_entries(body: bytes) -> list[BatchEntry]:
    """Cut a batch body into its messages; raises MessageIllegal when its sizes do not add up."""
    entries = []
    position = 0
    while position < len(body):
        entry, position = _batch_entry(body, position)
        entries.append(entry)
    return entries


def _batch_entry(body: bytes, position: int) -> tuple[BatchEntry, int]:
    try:
        size, _, _, flag, body_size = ENTRY_HEAD.unpack_from(body, position)
        body_at = position + ENTRY_HEAD.size
        if not 0 <= body_size <= size:
            raise MessageIllegal(f"a batch entry of {size} bytes with a body of {body_size}")
        (properties_size,) = ENTRY_PROPERTIES.unpack_from(body, body_at + body_size)
    except struct.error:
        raise MessageIllegal(f"the batch ends within an entry, at byte {position}") from None
    properties_at = body_at + body_size + ENTRY_PROPERTIES.size
    end = properties_at + properties_size
    if properties_size < 0 or end != position + size or end > len(body):
        raise MessageIllegal(f"the sizes of the batch entry at byte {position} do not add up")
    content = body[body_at : body_at + body_size]
    return BatchEntry(flag, content, body[properties_at:end]), end
