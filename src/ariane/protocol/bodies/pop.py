"""Bodies of batch acknowledgements, queue assignments and request modes."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

import msgspec
from msgspec import Meta, field

from ariane.errors import ProtocolError
from ariane.protocol import fastjson
from ariane.protocol.bodies.clients import CLUSTERING
from ariane.protocol.fastjson import JavaBody
from ariane.protocol.headers import Int32, Int64
from ariane.protocol.message_queue import MessageQueue

PULL = "PULL"
POP = "POP"
ACKS_MAX = 4_096  # checkpoints in one request
BITS_BYTES_MAX = 4_096  # of the text of one checkpoint's bits

_LONG_NAMES = {
    "bitSet": "b",
    "consumerGroup": "c",
    "invisibleTime": "it",
    "popTime": "pt",
    "queueId": "q",
    "retry": "r",
    "reviveQueueId": "rq",
    "startOffset": "so",
    "topic": "t",
}


class BatchAck(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of one checkpoint that are done with: bit N stands for `first + N`."""

    bits: Annotated[str, Meta(max_length=BITS_BYTES_MAX)] = field(name="b", default="")
    group: str = field(name="c")
    invisible_ms: Int64 = field(name="it", default=0)
    popped_ms: Int64 = field(name="pt", default=0)
    queue_id: Int32 = field(name="q", default=0)
    mark: str = field(name="r", default="0")
    revive_queue_id: Int32 = field(name="rq", default=0)
    first: Int64 = field(name="so", default=0)
    topic: str = field(name="t")

    def distances(self) -> list[int]:
        """How far from `first` each message is; raises ProtocolError."""
        try:
            number = int.from_bytes(base64.b64decode(self.bits, validate=True), "little")
        except (binascii.Error, ValueError) as error:
            raise ProtocolError(f"bits {self.bits!r} are not base64: {error}") from error
        distances = []
        while number:
            lowest = number & -number
            distances.append(lowest.bit_length() - 1)
            number ^= lowest
        return distances


class BatchAckBody(msgspec.Struct, frozen=True, kw_only=True):
    """BATCH_ACK_MESSAGE (200151)."""

    acks: Annotated[list[BatchAck], Meta(max_length=ACKS_MAX)] = field(default_factory=list)
    broker_name: str | None = field(name="brokerName", default=None)


def decode_batch_ack(data: bytes) -> BatchAckBody:
    """Read a batch acknowledgement in its short names, or its long ones; or ProtocolError."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError:
        pass  # long names, or fastjson's own spelling
    document = fastjson.loads(data)
    acks = document.get("acks") if isinstance(document, dict) else None
    if isinstance(acks, list):
        for ack in acks:
            if isinstance(ack, dict):
                for long_name, name in _LONG_NAMES.items():
                    if long_name in ack:
                        ack.setdefault(name, ack[long_name])
    try:
        return msgspec.convert(document or {}, BatchAckBody, strict=False)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"BatchAckBody cannot be read: {error}") from error


_decoder = msgspec.json.Decoder(BatchAckBody, strict=False)


class AssignmentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """QUERY_ASSIGNMENT (400): which queues are this client's?"""

    client_id: str = field(name="clientId")
    group: str = field(name="consumerGroup")
    message_model: str = field(name="messageModel", default=CLUSTERING)
    strategy: str = field(name="strategyName", default="")
    topic: str


class Assignment(JavaBody, frozen=True, kw_only=True):
    """One queue and how to read it; queue -1 is every queue of its broker."""

    queue: MessageQueue = field(name="messageQueue")
    mode: str = PULL


class Assignments(JavaBody, frozen=True, kw_only=True):
    """The answer to QUERY_ASSIGNMENT; without a list the client keeps what it has."""

    assignments: list[Assignment] | None = field(name="messageQueueAssignments", default=None)


class RequestMode(msgspec.Struct, frozen=True, kw_only=True):
    """SET_MESSAGE_REQUEST_MODE (401): how a group is to read a topic."""

    group: str = field(name="consumerGroup")
    mode: str = PULL
    share_queue_count: Int32 = field(name="popShareQueueNum", default=0)
    topic: str


class RequestModes(msgspec.Struct, frozen=True, kw_only=True):
    """config/messageRequestMode.json and the answer to 402: topic -> group -> mode."""

    modes: dict[str, dict[str, RequestMode]] = field(
        name="messageRequestModeMap", default_factory=dict
    )
