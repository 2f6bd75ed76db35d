"""Frames and commands: tables run both ways and in pieces, golden frames, limits, bad lengths."""

from __future__ import annotations

import tracemalloc

import pytest

from ariane.codes import PROTOCOL_VERSION, RequestCode, ResponseCode
from ariane.errors import BadHeader, FrameError, ProtocolError
from ariane.protocol.command import (
    ByteBudget,
    Command,
    CommandDecoder,
    Serializer,
    reply,
    request,
)
from ariane.protocol.headers.offsets import OffsetReply, QueueHeader
from tests.golden.frames import GoldenFrame, golden_frames


def frame(header: bytes, body: bytes = b"", serializer: int = 0) -> bytes:
    size = 4 + len(header) + len(body)
    return (
        size.to_bytes(4, "big")
        + bytes([serializer])
        + len(header).to_bytes(3, "big")
        + header
        + body
    )


CASES = {
    "no body": (
        frame(b'{"code":105,"extFields":{},"flag":0,"language":"JAVA","opaque":7,"version":479}'),
        Command(105, opaque=7),
    ),
    "fields, remark and body": (
        frame(
            b'{"code":17,"extFields":{"topic":"T"},"flag":1,"language":"GO","opaque":-1,'
            b'"version":317,"remark":"no route"}',
            b"\x00body\xff",
        ),
        Command(
            17,
            opaque=-1,
            flag=1,
            version=317,
            language="GO",
            remark="no route",
            ext={"topic": "T"},
            body=b"\x00body\xff",
        ),
    ),
    "binary, bare": (
        frame(
            b"\x00\x69" b"\x00" b"\x01\xdf" b"\x00\x00\x00\x07" b"\x00\x00\x00\x00"
            b"\x00\x00\x00\x00" b"\x00\x00\x00\x00",
            serializer=1,
        ),
        Command(105, opaque=7, serializer=Serializer.ROCKETMQ),
    ),
    "binary with remark, field and body": (
        frame(
            b"\xfc\x18" b"\x09" b"\x01\x3d" b"\xff\xff\xff\xff" b"\x00\x00\x00\x01"
            b"\x00\x00\x00\x03\xe2\x82\xac" b"\x00\x00\x00\x0c" b"\x00\x05topic\x00\x00\x00\x01T",
            b"body",
            serializer=1,
        ),
        Command(
            -1000,
            opaque=-1,
            flag=1,
            version=317,
            language="GO",
            remark="\u20ac",
            ext={"topic": "T"},
            body=b"body",
            serializer=Serializer.ROCKETMQ,
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("wire", "command"), CASES.values(), ids=CASES)
def test_frame_both_ways_and_in_pieces(wire: bytes, command: Command) -> None:
    assert command.encode() == wire
    assert CommandDecoder().feed(wire * 3 + b"\0") == [command] * 3
    decoder = CommandDecoder()
    assert [c for byte in wire * 2 for c in decoder.feed(bytes([byte]))] == [command] * 2
    assert decoder.partial_bytes == 0
    assert decoder.frame_count == 2


@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 7, 8, 9, 100, 4096])
def test_pieces_of_any_size_give_the_same_commands(piece_bytes: int) -> None:
    wires, commands = zip(*CASES.values(), strict=True)
    stream = b"".join(wires) * 5
    decoder = CommandDecoder()
    found = []
    for first in range(0, len(stream), piece_bytes):
        piece = stream[first : first + piece_bytes]
        decoder.get_buffer(-1)[: len(piece)] = piece
        found += decoder.received(len(piece))
    assert found == list(commands) * 5


def test_golden_frames_decode_and_encode_to_equal_values() -> None:
    decoder = CommandDecoder()
    for golden in golden_frames():
        assert decoder.feed(golden.wire()) == [golden.command()]
        for serializer in Serializer:
            command = golden.command()
            command.serializer = serializer
            expected = golden.command()
            expected.serializer = serializer
            if serializer is Serializer.ROCKETMQ:  # which cannot tell empty from absent
                expected.ext = {name: value for name, value in expected.ext.items() if value}
                expected.remark = expected.remark or None
            assert CommandDecoder(header_bytes_max=1 << 20).feed(command.encode()) == [expected]


def test_golden_frames_cover_both_clients() -> None:
    assert {golden.capture for golden in golden_frames()} == {"java-client", "go-client"}
    assert {10, 11, 14, 15, 30, 34, 38, 105, 106, 310, 320} <= {
        golden.code for golden in golden_frames()
    }


def test_request_and_reply_carry_headers() -> None:
    asked = request(RequestCode.GET_MIN_OFFSET, QueueHeader(topic="T", queue_id=3), opaque=9)
    assert asked.ext == {"topic": "T", "queueId": "3"}
    assert not asked.is_response
    assert not asked.is_one_way
    answer = reply(asked, ResponseCode.SUCCESS, OffsetReply(offset=5), body=b"b", remark="r")
    assert answer == Command(
        0, opaque=9, flag=1, version=PROTOCOL_VERSION, remark="r", ext={"offset": "5"}, body=b"b"
    )
    assert answer.is_response


def test_reply_is_in_the_serialisation_of_the_request() -> None:
    for serializer in Serializer:
        asked = Command(1, serializer=serializer)
        assert reply(asked).encode()[4] == serializer


def test_one_way_request() -> None:
    asked = request(RequestCode.UPDATE_CONSUMER_OFFSET, one_way=True)
    assert asked.is_one_way
    assert CommandDecoder().feed(asked.encode())[0].is_one_way


def test_pop_codes_come_back_from_sixteen_bits() -> None:
    for code in (200050, 200051, 200052, 200053, 200054, 200055, 200056, 200151):
        command = Command(code, serializer=Serializer.ROCKETMQ)
        assert CommandDecoder().feed(command.encode())[0].code == code
    response = Command(3442, flag=1, serializer=Serializer.ROCKETMQ)
    assert CommandDecoder().feed(response.encode())[0].code == 3442


BAD_FRAMES = {
    "length 0": b"\0\0\0\0\0\0\0\0",
    "length 3, less than its own word": b"\0\0\0\x03\0\0\0\0",
    "length -1": b"\xff\xff\xff\xff\0\0\0\0",
    "length 2^31-1": b"\x7f\xff\xff\xff\0\0\0\x02",
    "length 16 MiB - 3": (16 * 1024 * 1024 - 3).to_bytes(4, "big") + b"\0\0\0\x02",
    "header longer than frame": b"\0\0\0\x06\0\0\0\x03{}",
    "header over 256 KiB": (300_000).to_bytes(4, "big") + (262_145).to_bytes(4, "big"),
    "serializer 2": b"\0\0\0\x06\x02\0\0\x02{}",
    "serializer 255": b"\0\0\0\x06\xff\0\0\x02{}",
    "TLS ClientHello": b"\x16\x03\x01\x02\x00\x01\x00\x01",
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("wire", BAD_FRAMES.values(), ids=BAD_FRAMES)
def test_lengths_that_cannot_be_true_are_refused_at_the_eighth_byte(wire: bytes) -> None:
    decoder = CommandDecoder()
    assert decoder.feed(wire[:7]) == []
    with pytest.raises(FrameError):
        decoder.feed(wire[7:8])


@pytest.mark.parametrize("wire", BAD_FRAMES.values(), ids=BAD_FRAMES)
def test_commands_before_a_bad_frame_are_given_first(wire: bytes) -> None:
    good, command = CASES["no body"]
    whole = CommandDecoder()
    assert whole.feed(good + wire) == [command]
    with pytest.raises(FrameError):
        whole.feed(b"")
    cut = CommandDecoder()
    assert cut.feed(good[:5]) == []
    assert cut.feed(good[5:] + wire) == [command]
    for _ in range(2):
        with pytest.raises(FrameError):
            cut.received(0)


def test_empty_header_is_refused() -> None:
    with pytest.raises(BadHeader):
        CommandDecoder().feed(frame(b""))
    with pytest.raises(BadHeader):
        CommandDecoder().feed(frame(b"", serializer=1))


def test_largest_frame_is_read() -> None:
    limit = 1 << 16
    command = Command(1, body=b"")
    command.body = bytes(limit - len(command.encode()))
    assert CommandDecoder(frame_bytes_max=limit).feed(command.encode()) == [command]
    command.body += b"\0"
    with pytest.raises(FrameError):
        CommandDecoder(frame_bytes_max=limit).feed(command.encode())


def test_a_promised_frame_is_not_allocated() -> None:
    tracemalloc.start()
    try:
        scratch = bytearray(4096)
        decoders = [CommandDecoder(scratch=scratch) for _ in range(1000)]
        before = tracemalloc.get_traced_memory()[0]
        for decoder in decoders:
            assert decoder.feed((15 << 20).to_bytes(4, "big") + b"\0\0\0\x02{") == []
        assert tracemalloc.get_traced_memory()[0] - before < 1 << 20
    finally:
        tracemalloc.stop()


def test_decoders_share_a_budget_of_unfinished_bytes() -> None:
    budget = ByteBudget(1000)
    head = (1 << 20).to_bytes(4, "big") + b"\0\0\0\x02"
    first, second = CommandDecoder(budget=budget), CommandDecoder(budget=budget)
    first.feed(head + bytes(592))
    assert budget.used == 600
    with pytest.raises(FrameError, match="1000"):
        second.feed(head + bytes(500))
    second.close()
    assert budget.used == 600
    first.close()
    assert budget.used == 0


def test_finished_frames_leave_the_budget() -> None:
    budget = ByteBudget(1000)
    decoder = CommandDecoder(budget=budget)
    wire = Command(1, body=bytes(300)).encode()
    for _ in range(10):
        decoder.feed(wire[:200])
        assert budget.used == 200
        decoder.feed(wire[200:])
        assert budget.used == 0


def test_a_failed_decoder_stays_failed() -> None:
    decoder = CommandDecoder()
    for _ in range(3):
        with pytest.raises(ProtocolError):
            decoder.feed(frame(b"[]"))


def test_repr_says_what_it_is() -> None:
    assert "one-way code=15" in repr(request(15, one_way=True))
    assert "response code=0" in repr(reply(request(15)))


@pytest.mark.parametrize("golden", golden_frames()[:20], ids=lambda golden: str(golden.code))
def test_golden_frames_one_byte_at_a_time(golden: GoldenFrame) -> None:
    decoder = CommandDecoder()
    assert [c for byte in golden.wire() for c in decoder.feed(bytes([byte]))] == [golden.command()]
