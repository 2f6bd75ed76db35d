"""The remoting protocol over one blocking socket, written plainly, apart from the product's codec.

Tests drive any broker with it, ours or Apache's, and send it what no sound client would.
"""

import itertools
import json
import socket
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

SEND_V2, SEND_BATCH, PULL, QUERY, UPDATE_TOPIC = 310, 320, 11, 12, 17
QUERY_OFFSET, UPDATE_OFFSET, MAX_OFFSET, UPDATE_GROUP = 14, 15, 30, 200
PROPERTY_SEPARATOR, NAME_SEPARATOR = "\x02", "\x01"


@dataclass(frozen=True, slots=True)
class Answer:
    """One response."""

    code: int
    ext: dict[str, str]
    body: bytes
    remark: str
    opaque: int


@dataclass(frozen=True, slots=True)
class Sent:
    """Where the broker says it put a message."""

    queue_id: int
    queue_offset: int
    offset_id: str


@dataclass(frozen=True, slots=True)
class Record:
    """One message as stored."""

    topic: str
    queue_id: int
    queue_offset: int
    log_offset: int
    body: bytes
    properties: dict[str, str] = field(default_factory=dict)
    system_flag: int = 0
    reconsume_times: int = 0
    prepared_offset: int = 0
    stored_at_ms: int = 0


class WireRefused(AssertionError):
    """The server answered with another code than success."""


def frame(
    code: int, ext: dict[str, str], body: bytes = b"", *, opaque: int = 0, flag: int = 0
) -> bytes:
    """A request as Java's client writes it."""
    header = json.dumps(
        {
            "code": code, "extFields": ext, "flag": flag, "language": "JAVA", "opaque": opaque,
            "serializeTypeCurrentRPC": "JSON", "version": 495,
        },
        separators=(",", ":"),
    ).encode()  # fmt: skip
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


def properties_of(**values: str) -> str:
    """Properties as they travel."""
    return "".join(
        f"{name}{NAME_SEPARATOR}{value}{PROPERTY_SEPARATOR}" for name, value in values.items()
    )


def batch_body(bodies: Sequence[bytes], keys: Sequence[str]) -> bytes:
    """Several messages as one batch's body."""
    parts = []
    for body, key in zip(bodies, keys, strict=True):
        properties = properties_of(KEYS=key, TAGS="T", WAIT="true").encode()
        size = 22 + len(body) + len(properties)
        parts.append(struct.pack(">iiiii", size, 0, 0, 0, len(body)) + body)
        parts.append(struct.pack(">h", len(properties)) + properties)
    return b"".join(parts)


class Wire:
    """One connection; requests are answered in any order and matched by `opaque`."""

    def __init__(self, address: tuple[str, int], *, timeout_s: float = 20) -> None:
        self.socket = socket.create_connection(address, timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._opaque = itertools.count(1)
        self._input = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

    def write(self, code: int, ext: dict[str, str], body: bytes = b"") -> int:
        """Send a request without waiting; give its opaque."""
        opaque = next(self._opaque)
        self.socket.sendall(frame(code, ext, body, opaque=opaque))
        return opaque

    def read(self) -> Answer:
        """The next response on the connection; requests from the server are passed over."""
        while True:
            size = struct.unpack(">i", self._take(4))[0]
            data = self._take(size)
            length = struct.unpack_from(">i", data)[0] & 0xFFFFFF
            head = json.loads(data[4 : 4 + length])
            if head["flag"] & 1:
                ext = head.get("extFields") or {}
                return Answer(
                    head["code"], ext, data[4 + length :], head.get("remark") or "", head["opaque"]
                )

    def _take(self, count: int) -> bytes:
        while len(self._input) < count:
            data = self.socket.recv(1 << 18)
            if not data:
                raise ConnectionResetError("closed by the server")
            self._input += data
        taken = bytes(self._input[:count])
        del self._input[:count]
        return taken

    def call(
        self, code: int, ext: dict[str, str], body: bytes = b"", *, check: bool = True
    ) -> Answer:
        """One request and its response."""
        opaque = self.write(code, ext, body)
        while (answer := self.read()).opaque != opaque:
            pass
        if check and answer.code != 0:
            raise WireRefused(f"request {code} {ext} answered {answer.code}: {answer.remark}")
        return answer

    def create_topic(self, topic: str, queues: int = 4) -> None:
        """Create or change a topic at the broker."""
        self.call(
            UPDATE_TOPIC,
            {
                "topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues),
                "writeQueueNums": str(queues), "perm": "6", "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0", "order": "false",
            },
        )  # fmt: skip

    def create_group(self, group: str, **settings: object) -> None:
        """Create a subscription group at the broker."""
        self.call(UPDATE_GROUP, {}, json.dumps({"groupName": group, **settings}).encode())

    def send(self, topic: str, queue_id: int, body: bytes, *, key: str, tag: str = "T") -> Sent:
        """Send one message and wait for its place."""
        return sent_of(self.call(SEND_V2, send_header(topic, queue_id, key=key, tag=tag), body))

    def send_batch(
        self, topic: str, queue_id: int, bodies: Sequence[bytes], keys: Sequence[str]
    ) -> Sent:
        """Send several messages at once; the place is that of the first."""
        header = {**send_header(topic, queue_id, key="", tag=""), "i": "", "m": "true"}
        return sent_of(self.call(SEND_BATCH, header, batch_body(bodies, keys)))

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The end of a queue."""
        return int(self.call(MAX_OFFSET, {"topic": topic, "queueId": str(queue_id)}).ext["offset"])

    def pull(self, topic: str, queue_id: int, first: int, count: int = 32) -> list[Record]:
        """Messages of a queue from `first` on; none when there are none."""
        ext = {
            "consumerGroup": "harness", "topic": topic, "queueId": str(queue_id),
            "queueOffset": str(first), "maxMsgNums": str(count), "sysFlag": "4",
            "commitOffset": "0", "suspendTimeoutMillis": "0",
            "subscription": "*", "subVersion": "0", "expressionType": "TAG",
        }  # fmt: skip
        answer = self.call(PULL, ext, check=False)
        return list(decode_records(answer.body)) if answer.code == 0 else []

    def read_queue(self, topic: str, queue_id: int, first: int = 0) -> list[Record]:
        """All messages of a queue, checked to be numbered without a gap."""
        records: list[Record] = []
        end = self.max_offset(topic, queue_id)
        while first + len(records) < end:
            found = self.pull(topic, queue_id, first + len(records))
            assert found, (
                f"{topic}/{queue_id} ends at {end} but gives nothing at {first + len(records)}"
            )
            for record in found:
                assert record.queue_offset == first + len(records), (record, first + len(records))
                records.append(record)
        return records

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set a group's progress in a queue."""
        place = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)}
        self.call(UPDATE_OFFSET, {**place, "commitOffset": str(offset)})

    def committed(self, group: str, topic: str, queue_id: int) -> int:
        """A group's progress in a queue."""
        place = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)}
        return int(self.call(QUERY_OFFSET, place).ext["offset"])

    def query(self, topic: str, key: str, *, count: int = 64) -> list[Record]:
        """Messages that carry the key."""
        ext = {
            "topic": topic, "key": key, "maxNum": str(count), "beginTimestamp": "0",
            "endTimestamp": str(2**63 - 1), "indexType": "K", "_UNIQUE_KEY_QUERY": "false",
        }  # fmt: skip
        answer = self.call(QUERY, ext, check=False)
        return list(decode_records(answer.body)) if answer.code == 0 else []


def send_header(topic: str, queue_id: int, *, key: str, tag: str) -> dict[str, str]:
    """The short-named header of a send."""
    return {
        "a": "harness", "b": topic, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0",
        "g": "1700000000000", "h": "0", "i": properties_of(KEYS=key, TAGS=tag, WAIT="true"),
        "j": "0", "k": "false", "l": "0", "m": "false",
    }  # fmt: skip


def sent_of(answer: Answer) -> Sent:
    """The place a send's answer names."""
    return Sent(int(answer.ext["queueId"]), int(answer.ext["queueOffset"]), answer.ext["msgId"])


def decode_records(data: bytes) -> Iterator[Record]:
    """The records of a pull's or query's body, each checked against its CRC."""
    position = 0
    while position < len(data):
        size, magic, crc, queue_id = struct.unpack_from(">iiii", data, position)
        assert magic & 0xFFFFFFFF in (0xDAA320A7, 0xDAA320AB), hex(magic)
        _flag, queue_offset, log_offset, system_flag = struct.unpack_from(
            ">iqqi", data, position + 16
        )
        at = position + 48 + (20 if system_flag & 16 else 8)  # born host
        (stored_at_ms,) = struct.unpack_from(">q", data, at)
        at += 8 + (20 if system_flag & 32 else 8)  # and the store host
        reconsume_times, prepared_offset = struct.unpack_from(">iq", data, at)
        at += 4 + 8
        (length,) = struct.unpack_from(">i", data, at)
        body = data[at + 4 : at + 4 + length]
        assert zlib.crc32(body) & 0x7FFFFFFF == crc, f"record at {log_offset} has a wrong CRC"
        at += 4 + length
        width = ">B" if magic & 0xFFFFFFFF == 0xDAA320A7 else ">h"
        (length,) = struct.unpack_from(width, data, at)
        at += struct.calcsize(width)
        topic = data[at : at + length].decode()
        at += length
        (length,) = struct.unpack_from(">h", data, at)
        properties = data[at + 2 : at + 2 + length].decode()
        assert at + 2 + length == position + size, f"record at {log_offset} says {size} bytes"
        pairs = (
            pair.split(NAME_SEPARATOR, 1) for pair in properties.split(PROPERTY_SEPARATOR) if pair
        )
        yield Record(
            topic,
            queue_id,
            queue_offset,
            log_offset,
            body,
            {name: value for name, value in pairs},
            system_flag,
            reconsume_times,
            prepared_offset,
            stored_at_ms,
        )
        position += size
