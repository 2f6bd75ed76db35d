"""A million mutated inputs: every decoder answers with a value or a ProtocolError, and soon.

The inputs are captured frames and hand-made records with bytes flipped, cut, repeated, spliced and
overwritten by the numbers that break parsers. The seed is part of the test's name; ARIANE_SEED sets
another.
"""

from __future__ import annotations

import os
import resource
import time
import zlib
from collections.abc import Callable
from random import Random
from typing import NamedTuple, TypeVar

import msgspec
import pytest

from ariane.errors import ProtocolError
from ariane.protocol import binary_header, fastjson, json_header
from ariane.protocol.bodies import (
    ClusterInfo,
    ConsumerOffsets,
    HeartbeatData,
    LockRequest,
    RegisterBrokerBody,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicConfigTable,
    TopicRouteData,
    TopicStats,
    decode_register_body,
)
from ariane.protocol.command import Command, CommandDecoder, Serializer
from ariane.protocol.headers import Header, decode_header, encode_header
from ariane.protocol.headers.nameserver import RegisterBrokerHeader
from ariane.protocol.headers.offsets import MaxOffsetHeader
from ariane.protocol.headers.pull import PullHeader
from ariane.protocol.headers.query import QueryHeader
from ariane.protocol.headers.send import SendHeader, SendHeaderV2, decode_send_header
from ariane.protocol.headers.topics import CreateTopicHeader
from ariane.protocol.message import (
    BatchEntry,
    decode_batch,
    decode_properties,
    decode_records,
    encode_batch,
    encode_properties,
)
from tests.golden.frames import golden_frames
from tests.unit.protocol.record_bytes import register_bytes

K = TypeVar("K")

SCRATCH = bytearray(1)  # feeding needs none, and making a large one each time takes long
INPUT_BYTES_MAX = 4096  # of the corpus: small inputs meet more branches in the same time
SLOWEST_S = 1.0
GROWTH_BYTES_MAX = 200 << 20

NUMBERS = [
    number.to_bytes(size, "big", signed=True)
    for size in (1, 2, 4, 8)
    for number in (0, 1, -1, 127, -128, (1 << (8 * size - 1)) - 1, -(1 << (8 * size - 1)), 4, 8, 91)
]
TOKENS = [
    *(b'"', b"'", b"\\", b"{", b"}", b"[", b"]", b":", b",", b"null", b"true", b"NaN", b"1e999"),
    *(b"\\ud800", b"\\u0000", b"\xff", b"\xed\xa0\x80", b"\x00", b"\x01", b"\x02", b"-", b"9" * 40),
    *(b'{"$ref":"$"}', b'{"$ref":"$.a"}', b"{0:", b"[[[[[[[[[[[[[[[[[[", b"{{", b'"a":', b"||"),
    *(b"-626843481", b"2147483648", b"9223372036854775808", b"0x10", b"1.5", b" ", b"\n"),
]


class Mutator:
    """Turns good inputs into bad ones; the same seed makes the same ones."""

    def __init__(self, seed: int, corpus: list[bytes]) -> None:
        assert corpus
        self._random = Random(seed)
        self._corpus = corpus
        self._ways: tuple[Callable[[bytearray], None], ...] = (
            self._flip,
            self._flip,
            self._overwrite,
            self._overwrite,
            self._insert,
            self._cut,
            self._truncate,
            self._repeat,
            self._splice,
        )

    def next(self) -> bytes:
        """One mutated input."""
        data = bytearray(self._corpus[self._below(len(self._corpus))])
        for _ in range(1 + self._below(4)):
            self._ways[self._below(len(self._ways))](data)
        return bytes(data)

    def _below(self, end: int) -> int:
        return int(self._random.random() * end)

    def _flip(self, data: bytearray) -> None:
        if data:
            data[self._below(len(data))] ^= 1 << self._below(8)

    def _overwrite(self, data: bytearray) -> None:
        number = NUMBERS[self._below(len(NUMBERS))]
        # Lengths lie near the front, so half of the numbers go there.
        reach = min(len(data), 96) if self._random.random() < 0.5 else len(data)
        first = self._below(reach + 1)
        data[first : first + len(number)] = number

    def _insert(self, data: bytearray) -> None:
        first = self._below(len(data) + 1)
        data[first:first] = TOKENS[self._below(len(TOKENS))]

    def _cut(self, data: bytearray) -> None:
        first = self._below(len(data) + 1)
        del data[first : first + 1 + self._below(16)]

    def _truncate(self, data: bytearray) -> None:
        del data[self._below(len(data) + 1) :]

    def _repeat(self, data: bytearray) -> None:
        first = self._below(len(data) + 1)
        piece = data[first : first + 1 + self._below(32)]
        data[first:first] = piece * (1 + self._below(8))

    def _splice(self, data: bytearray) -> None:
        other = self._corpus[self._below(len(self._corpus))]
        data[self._below(len(data) + 1) :] = other[self._below(len(other) + 1) :]


def frames() -> list[bytes]:
    """Captured frames, half of them rewritten with binary headers."""
    found = []
    for golden in golden_frames():
        command = golden.command()
        command.body = command.body[:200]
        found.append(command.encode())
        command.serializer = Serializer.ROCKETMQ
        found.append(command.encode())
    return [frame for frame in found if len(frame) < INPUT_BYTES_MAX]


def headers(serializer: Serializer) -> list[bytes]:
    """Captured headers alone."""
    found = []
    for frame in frames():
        if frame[4] == serializer:
            found.append(frame[8 : 8 + int.from_bytes(frame[5:8], "big")])
    return found


def records() -> list[bytes]:
    """Bodies of pulls, cut behind their second record."""
    found = []
    for golden in golden_frames():
        if golden.code in (11, 12, 33) and golden.is_success and golden.body:
            first = int.from_bytes(golden.body[:4], "big")
            second = int.from_bytes(golden.body[first : first + 4], "big")
            found += [golden.body[:first], golden.body[: first + second]]
    return found


def properties() -> list[bytes]:
    texts = [golden.ext.get("i") or golden.ext.get("properties") for golden in golden_frames()]
    return [text.encode() for text in texts if text]


def batches() -> list[bytes]:
    entries = [
        BatchEntry(body=text[:20], properties=text.decode(), flag=len(text))
        for text in properties()
    ]
    return [encode_batch(entries[first : first + 3]) for first in range(0, len(entries), 3)]


# Inputs that may be read as several kinds begin with a byte that says which, mutated like the rest.
BODY_KINDS: dict[int, type[msgspec.Struct]] = {
    34: HeartbeatData,
    41: LockRequest,
    105: TopicRouteData,
    106: ClusterInfo,
    200: SubscriptionGroupConfig,
    202: TopicStats,
    43: ConsumerOffsets,
}
HEADER_KINDS: dict[int, type[Header]] = {
    10: SendHeader,
    11: PullHeader,
    12: QueryHeader,
    17: CreateTopicHeader,
    30: MaxOffsetHeader,
    103: RegisterBrokerHeader,
    310: SendHeaderV2,
}


def bodies() -> list[bytes]:
    """JSON bodies, standard and odd."""
    codes = list(BODY_KINDS)
    found = {
        bytes([codes.index(golden.code)]) + golden.body
        for golden in golden_frames()
        if golden.code in codes and golden.body[:1] == b"{" and len(golden.body) < INPUT_BYTES_MAX
    }
    odd = [
        b"{0:'a',\"b\":[1,2,],{'topic':'T','queueId':0,'brokerName':'b'}:{\"$ref\":\"$.b\"}}",
        b'{"a":{"x":[{"y":1}]},"b":{"$ref":"$.a.x[0]"},"c":{"$ref":".."}}',
        b'{"dataVersion":{"counter":1},"offsetTable":{"T@G":{0:12,1:7},"U@G":{0:1}}}',
    ]
    return sorted(found) + [bytes([codes.index(43)]) + text for text in odd]


def header_fields() -> list[bytes]:
    """The fields of captured headers: names and values, one after the other."""
    codes = list(HEADER_KINDS)
    found = {
        bytes([codes.index(golden.code)])
        + "\n".join(text for pair in golden.ext.items() for text in pair).encode()
        for golden in golden_frames()
        if golden.code in codes and golden.answers is None
    }
    return sorted(found)


def registrations() -> list[bytes]:
    topics = {
        f"topic-{number}": TopicConfig(
            name=f"topic-{number}", attributes={"+message.type": "NORMAL"} if number % 2 else {}
        )
        for number in range(6)
    }
    body = RegisterBrokerBody(table=TopicConfigTable(topics=topics), filter_servers=["a:1", "b:2"])
    return [fastjson.encode(body), register_bytes(body), register_bytes(body, mappings=True)]


def take_frames(data: bytes) -> object:
    """The decoder sees the same stream whole and in two pieces, and must say the same of it."""
    whole = _outcome([data])
    middle = len(data) // 2
    assert _outcome([data[:middle], data[middle:]]) == whole
    if whole[1]:
        raise ProtocolError(whole[1])
    return whole


def _outcome(pieces: list[bytes]) -> tuple[list[Command], str]:
    decoder = CommandDecoder(scratch=SCRATCH)
    commands: list[Command] = []
    try:
        for piece in pieces:
            while found := decoder.feed(piece):
                commands += found
                piece = b""  # noqa: PLW2901 - asks again for an error behind the commands
    except ProtocolError as error:
        return commands, str(error)
    assert decoder.partial_bytes <= sum(map(len, pieces))
    return commands, ""


def take_custom_header(data: bytes) -> object:
    texts = data[1:].decode(errors="replace").split("\n")
    ext = dict(zip(texts[::2], texts[1::2], strict=False))
    kind = _chosen(list(HEADER_KINDS.values()), data)
    header = decode_send_header(ext) if kind is SendHeader else decode_header(kind, ext)
    assert decode_header(type(header), encode_header(header)) == header
    return header


def take_properties(data: bytes) -> object:
    found = decode_properties(data.decode(errors="replace"))
    assert decode_properties(encode_properties(found)) == found
    return found


def take_body(data: bytes) -> object:
    return fastjson.loads(data[1:]), fastjson.decode(
        data[1:], _chosen(list(BODY_KINDS.values()), data)
    )


def _chosen(kinds: list[type[K]], data: bytes) -> type[K]:
    return kinds[data[0] % len(kinds)] if data else kinds[0]


def take_registration(data: bytes) -> object:
    return decode_register_body(data if data[:1] == b"{" else zlib.compress(data, 1))


class Target(NamedTuple):
    """One decoder, what to feed it, and how much of it."""

    take: Callable[[bytes], object]
    corpus: Callable[[], list[bytes]]
    count: int


TARGETS = {
    "frames": Target(take_frames, frames, 180_000),
    "JSON headers": Target(json_header.decode, lambda: headers(Serializer.JSON), 200_000),
    "binary headers": Target(binary_header.decode, lambda: headers(Serializer.ROCKETMQ), 160_000),
    "custom headers": Target(take_custom_header, header_fields, 100_000),
    "records": Target(decode_records, records, 100_000),
    "properties": Target(take_properties, properties, 80_000),
    "batches": Target(decode_batch, batches, 80_000),
    "JSON bodies": Target(take_body, bodies, 60_000),
    "registrations": Target(take_registration, registrations, 40_000),
}
assert sum(target.count for target in TARGETS.values()) == 1_000_000

SEEDS = [int(os.environ.get("ARIANE_SEED", "1"))]


def survive(name: str, count: int, seed: int) -> None:
    """Feed `count` mutated inputs to a decoder and see that it holds."""
    target = TARGETS[name]
    mutator = Mutator(seed, target.corpus())
    accepted = refused = 0
    slowest_s, slowest = 0.0, b""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(count):
        data = mutator.next()
        started_s = time.perf_counter()
        try:
            target.take(data)
        except ProtocolError:
            refused += 1
        except BaseException as error:
            error.add_note(f"ARIANE_SEED={seed}, {name}: {data!r}")
            raise
        else:
            accepted += 1
        took_s = time.perf_counter() - started_s
        if took_s > slowest_s:
            slowest_s, slowest = took_s, data
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    print(
        f"accepted {accepted}, refused {refused}, slowest {slowest_s * 1000:.1f} ms, grew {growth}"
    )
    assert slowest_s < SLOWEST_S, slowest
    assert growth < GROWTH_BYTES_MAX
    # Both outcomes must be common, or the mutations miss their mark.
    assert min(accepted, refused) > count // 100 or name == "properties"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", TARGETS)
def test_bad_bytes_briefly(name: str, seed: int) -> None:
    survive(name, TARGETS[name].count // 100, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", TARGETS)
def test_a_million_bad_inputs(name: str, seed: int) -> None:
    survive(name, TARGETS[name].count, seed)
