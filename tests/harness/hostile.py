"""Frames no sound client sends, in two kinds.

A frame that `breaks` spoils the stream: the server must close the connection, whether or not it
sends an error first. The others are well framed and mean nonsense: the server must answer them.
Bits flipped at random may do either.
"""

import functools
import json
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass

from tests.harness.wire import frame, properties_of, send_header

NAMES = [
    "../../../../tmp/escaped", "..", ".", "/etc/passwd", "a/b", "a\\b", "", " ", "x" * 300,
    "\0", "a\nb",
    "%RETRY%", "%DLQ%../x", "topic\u202e", "Ünïcode", "TBW102", "SCHEDULE_TOPIC_XXXX",
    "__proto__", "{}",
    "RMQ_SYS_TRANS_HALF_TOPIC", "a" * 127 + "/..", "%2e%2e%2f", "CON", "-rf", "$(reboot)",
    "'; drop", "*", "||",
]  # fmt: skip
NUMBERS = [
    "0", "-1", "1", "2147483647", "-2147483648", "2147483648", "9223372036854775807",
    "-9223372036854775808", "9223372036854775808", "1e308", "NaN", "", " 1", "0x10", "1_000",
    "٣", "true", "null",
    "9" * 400, "-" * 50,
]  # fmt: skip
CODES = [
    10, 310, 320, 11, 12, 14, 15, 17, 21, 25, 26, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38,
    41, 42, 46, 200, 201,
    202, 203, 204, 206, 207, 208, 307, 361, 105, 106, 0, 1, -1, 999999, 2**31 - 1,
]  # fmt: skip
# Headers' names, long and short, so that nonsense lands in fields the server reads.
FIELDS = [
    "topic", "queueId", "queueOffset", "maxMsgNums", "consumerGroup", "producerGroup",
    "sysFlag", "commitOffset",
    "suspendTimeoutMillis", "subscription", "subVersion", "expressionType", "key", "maxNum",
    "beginTimestamp",
    "endTimestamp", "offset", "timestamp", "readQueueNums", "writeQueueNums", "perm",
    "topicFilterType", "order",
    "defaultTopic", "msgId", "group", "brokerName", "clientID", "a", "b", "c", "d", "e", "f",
    "g", "h", "i", "j",
    "k", "l", "m", "n",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hostile:
    """One attack's bytes."""

    kind: str
    data: bytes
    breaks: bool


def raw(length: int, header_word: int, rest: bytes = b"") -> bytes:
    """A frame whose two leading words say what they like."""
    return struct.pack(">II", length & 0xFFFFFFFF, header_word & 0xFFFFFFFF) + rest


def bad_length(dice: random.Random) -> Hostile:
    length = dice.choice([0, 1, 3, -1, -(2**31), 2**31 - 1, 17 << 20, 64 << 20])
    return Hostile("length", raw(length, dice.getrandbits(32), dice.randbytes(16)), breaks=True)


def bad_header_length(dice: random.Random) -> Hostile:
    length = dice.choice([8, 100, 4000])
    lie = dice.choice([length, length + 1, 0xFFFFFF, 1 << 20, 0x7FFFFF])
    return Hostile("header length", raw(length, lie, b"{" * (length - 4)), breaks=True)


def bad_serializer(dice: random.Random) -> Hostile:
    body = dice.randbytes(40)
    word = dice.choice([2, 5, 127, 255]) << 24 | 20
    return Hostile("serializer", raw(4 + len(body), word, body), breaks=True)


def bad_json(dice: random.Random) -> Hostile:
    depth = dice.choice([100, 5_000, 20_000])
    text = dice.choice(
        [
            b"[" * depth, b'{"extFields":' * (depth // 13), b"{" * 50, b"", b"null", b"[]",
            b'"text"', b"1e999",
            b'{"code":', b"\xff\xfe{}", b'{"code":"\\ud800"}', b'{"code":1e400}',
            b'{"code":10,"opaque":{}}',
            b'{"code":' + b"9" * 5000 + b"}", b'{"code":10,"extFields":[1,2,3],"opaque":1}',
            dice.randbytes(60),
        ]
    )  # fmt: skip
    return Hostile("json", raw(4 + len(text), len(text), text), breaks=True)


@functools.cache  # milliseconds each
def header_of(field_count: int) -> bytes:
    return frame(310, {f"k{number}": "v" for number in range(field_count)}, opaque=1)


def header_bomb(dice: random.Random) -> Hostile:
    return Hostile("header bomb", header_of(dice.choice([2_000, 10_000])), breaks=True)


def bad_binary_header(dice: random.Random) -> Hostile:
    code, opaque = dice.choice(CODES) & 0xFFFF, 1
    head = struct.pack(">HBHiI", code, 0, 495, opaque, 0)
    lie = struct.pack(">i", dice.choice([-1, 2**31 - 1, 10_000, 5]))
    tail = dice.choice([lie, struct.pack(">i", 0) + lie, struct.pack(">i", 0) + lie + b"\0\x05ab"])
    text = head + tail
    return Hostile("binary header", raw(4 + len(text), 1 << 24 | len(text), text), breaks=True)


def noise(dice: random.Random) -> Hostile:
    # The first byte announces a length beyond any limit, so that the server need not wait for more.
    return Hostile("noise", b"\x7f" + dice.randbytes(dice.randrange(8, 2000)), breaks=True)


def nonsense_request(dice: random.Random) -> Hostile:
    """Any request code with any values in any fields."""
    ext = {
        name: dice.choice(NUMBERS if dice.random() < 0.6 else NAMES)
        for name in dice.sample(FIELDS, dice.randrange(0, 14))
    }
    body = dice.choice([b"", b"{}", b"[", b"null", b'{"a":[[[[[[[[', dice.randbytes(30)])
    return Hostile("nonsense", frame(dice.choice(CODES), ext, body, opaque=1), breaks=False)


def bad_send(dice: random.Random) -> Hostile:
    """A send that is right but for one field."""
    header = send_header("HostileTopic", 0, key="k", tag="t")
    field = dice.choice(list(header))
    header[field] = dice.choice(NUMBERS + NAMES)
    if field == "i":
        pieces = [properties_of(DELAY="99"), "x" * 40_000, "\1\2\1\2", "\2" * 500, "KEYS\1", "a\1b"]
        header["i"] = dice.choice(pieces)
    if dice.random() < 0.2:
        del header[field]
    return Hostile("send", frame(310, header, b"body", opaque=1), breaks=False)


def bad_batch(dice: random.Random) -> Hostile:
    """A batch whose inner sizes lie."""
    header = {**send_header("HostileTopic", 0, key="", tag=""), "i": "", "m": "true"}
    size = dice.choice([0, -1, 22, 2**31 - 1, 30, 21])
    length = dice.choice([0, -1, 8, 2**31 - 1, 4000])
    body = struct.pack(">iiiii", size, 0, 0, 0, length) + b"12345678"
    body += struct.pack(">h", dice.choice([0, -1, 32767, 5]))
    return Hostile("batch", frame(320, header, body * dice.randrange(1, 4), opaque=1), breaks=False)


def bad_topic_name(dice: random.Random) -> Hostile:
    name = dice.choice(NAMES)
    if dice.random() < 0.5:
        data = frame(310, send_header(name, 0, key="k", tag="t"), b"x", opaque=1)
    else:
        ext = {
            "topic": name, "defaultTopic": "TBW102", "readQueueNums": dice.choice(NUMBERS),
            "writeQueueNums": dice.choice(NUMBERS), "perm": dice.choice(NUMBERS),
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
        }  # fmt: skip
        data = frame(17, ext, opaque=1)
    return Hostile("topic name", data, breaks=False)


def bad_pull(dice: random.Random) -> Hostile:
    ext = {
        "consumerGroup": dice.choice(["g", *NAMES]), "topic": dice.choice(["HostileTopic", *NAMES]),
        "queueId": dice.choice(NUMBERS), "queueOffset": dice.choice(NUMBERS),
        "maxMsgNums": dice.choice(NUMBERS),
        "sysFlag": dice.choice(["0", "4", "5"]), "commitOffset": dice.choice(NUMBERS),
        "suspendTimeoutMillis": "0",
        "subscription": dice.choice(["*", "a||b||" * 1000, "||", *NAMES]),
        "subVersion": dice.choice(NUMBERS),
        "expressionType": dice.choice(["TAG", "SQL92", "x", ""]),
    }  # fmt: skip
    return Hostile("pull", frame(11, ext, opaque=1), breaks=False)


def bad_body(dice: random.Random) -> Hostile:
    """Heartbeats, locks and group settings with bodies that are not what they should be."""
    nested: object = "x"
    for _ in range(dice.choice([1, 30, 400])):
        nested = [nested] if dice.random() < 0.5 else {"consumerDataSet": nested}
    body = json.dumps(
        dice.choice(
            [
                nested, {"clientID": 5},
                {"clientID": "c", "consumerDataSet": [{"groupName": "../x"}]},
                {"consumerGroup": None, "clientId": [], "mqSet": [{}]},
                {"groupName": "../../x"}, [],
                {"producerDataSet": [{"groupName": "g" * 10_000}] * 20, "clientID": ""},
            ]
        )
    ).encode()  # fmt: skip
    return Hostile("body", frame(dice.choice([34, 41, 42, 200, 25]), {}, body, opaque=1), False)


def flipped(dice: random.Random) -> Hostile:
    """A good send with some bits turned; its length still holds."""
    data = bytearray(
        frame(310, send_header("HostileTopic", 0, key="k", tag="t"), b"b" * 40, opaque=1)
    )
    for _ in range(dice.randrange(1, 6)):
        data[dice.randrange(8, len(data))] ^= 1 << dice.randrange(8)
    return Hostile("flipped", bytes(data), breaks=False)


BREAKING: list[Callable[[random.Random], Hostile]] = [
    bad_length, bad_header_length, bad_serializer, bad_json, header_bomb, bad_binary_header, noise,
    flipped,
]  # fmt: skip
NONSENSE: list[Callable[[random.Random], Hostile]] = [
    nonsense_request, bad_send, bad_batch, bad_topic_name, bad_pull, bad_body,
]  # fmt: skip
