"""Whatever is encoded decodes to the same value, in any pieces."""

from __future__ import annotations

import types
import typing
import zlib

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ariane.codes import LANGUAGES, SystemFlag
from ariane.protocol import fastjson
from ariane.protocol.bodies import (
    ClusterInfo,
    ConsumerOffsets,
    HeartbeatData,
    MessageQueue,
    RegisterBrokerBody,
    SubscriptionGroupTable,
    TopicConfig,
    TopicRouteData,
    TopicStats,
    decode_register_body,
)
from ariane.protocol.command import Command, CommandDecoder, Serializer
from ariane.protocol.headers import Header, decode_header, encode_header
from ariane.protocol.headers.offsets import ResetOffsetHeader
from ariane.protocol.headers.pull import PullHeader, PullReply
from ariane.protocol.headers.send import SendHeader, SendHeaderV2, SendReply
from ariane.protocol.message import (
    MAGIC_V1,
    MAGIC_V2,
    BatchEntry,
    StoredMessage,
    decode_batch,
    decode_offset_id,
    decode_properties,
    decode_records,
    encode_batch,
    encode_offset_id,
    encode_properties,
    java_hash,
)
from tests.unit.protocol.record_bytes import record_bytes, register_bytes

INT16 = st.integers(-(1 << 15), (1 << 15) - 1)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
FIELDS = st.dictionaries(TEXT, TEXT, max_size=20)
# Names and values that separators cannot be confused with.
PLAIN = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=40
)
PROPERTIES = st.dictionaries(PLAIN, PLAIN, max_size=20)
IPV4 = st.tuples(st.ip_addresses(v=4).map(str), st.integers(0, 65_535))
IPV6 = st.tuples(st.ip_addresses(v=6).map(str), st.integers(0, 65_535))


@st.composite
def json_commands(draw: st.DrawFn) -> Command:
    return Command(
        draw(INT32),
        opaque=draw(INT32),
        flag=draw(INT32),
        version=draw(INT32),
        language=draw(TEXT),
        remark=draw(st.none() | TEXT),
        ext=draw(FIELDS),
        body=draw(st.binary(max_size=300)),
    )


@st.composite
def binary_commands(draw: st.DrawFn) -> Command:
    """What the binary form can tell apart: 16-bit codes, known languages, no empty text."""
    return Command(
        draw(st.integers(-(1 << 15), 3000)),
        opaque=draw(INT32),
        flag=draw(INT32),
        version=draw(INT16),
        language=draw(st.sampled_from(LANGUAGES)),
        remark=draw(st.none() | TEXT.filter(bool)),
        ext={name: value for name, value in draw(FIELDS).items() if value},
        body=draw(st.binary(max_size=300)),
        serializer=Serializer.ROCKETMQ,
    )


COMMANDS = st.lists(json_commands() | binary_commands(), max_size=8)


@given(COMMANDS, st.data())
def test_commands_in_any_pieces(commands: list[Command], data: st.DataObject) -> None:
    stream = b"".join(command.encode() for command in commands)
    assert CommandDecoder().feed(stream) == commands
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    decoder = CommandDecoder()
    found = []
    for first, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += decoder.feed(stream[first:end])
    assert found == commands
    assert (decoder.partial_bytes, decoder.frame_count) == (0, len(commands))


@st.composite
def header_values(draw: st.DrawFn) -> Header:
    kind = draw(
        st.sampled_from(
            [SendHeader, SendHeaderV2, SendReply, PullHeader, PullReply, ResetOffsetHeader]
        )
    )
    return draw(structs(kind))


def structs(kind: type[msgspec.Struct]) -> st.SearchStrategy[msgspec.Struct]:
    """Values of a struct, from the types of its fields."""
    return st.builds(
        kind, **{field.name: _values(field.type) for field in msgspec.structs.fields(kind)}
    )


def _values(kind: object) -> st.SearchStrategy[object]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        bounds = arguments[1]
        if arguments[0] is int:
            return st.integers(bounds.ge, bounds.le)
        return _values(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return st.one_of([_values(argument) for argument in arguments])
    if origin is list:
        return st.lists(_values(arguments[0]), max_size=4)
    if origin is dict:
        if arguments == (str, object):
            return st.dictionaries(TEXT, TEXT | INT64 | st.booleans(), max_size=3)
        return st.dictionaries(_values(arguments[0]), _values(arguments[1]), max_size=4)
    simple: dict[object, st.SearchStrategy[object]] = {
        str: TEXT,
        bool: st.booleans(),
        int: INT64,
        float: st.floats(allow_nan=False, allow_infinity=False),
        type(None): st.none(),
    }
    if kind in simple:
        return simple[kind]
    assert isinstance(kind, type)
    assert issubclass(kind, msgspec.Struct)
    return structs(kind)


@given(header_values())
def test_headers(header: Header) -> None:
    ext = encode_header(header)
    assert all(isinstance(value, str) for value in ext.values())
    assert decode_header(type(header), ext) == header


BODIES = [
    HeartbeatData,
    TopicRouteData,
    ClusterInfo,
    TopicStats,
    SubscriptionGroupTable,
    RegisterBrokerBody,
    ConsumerOffsets,
]


@given(st.sampled_from(BODIES).flatmap(structs))
def test_bodies_compact_and_pretty(body: msgspec.Struct) -> None:
    for wire in (fastjson.encode(body), fastjson.dumps_pretty(body)):
        assert fastjson.decode(wire, type(body), size_max=1 << 30) == body
    bare = fastjson.dumps(body, unquoted_keys=True)
    assert fastjson.decode(bare, type(body), size_max=1 << 30) == body


JSON = st.recursive(
    st.none() | st.booleans() | INT64 | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
).filter(lambda value: "$ref" not in repr(value))


def _cleaned(value: object) -> object:
    if isinstance(value, dict):
        return {name: _cleaned(item) for name, item in value.items() if item is not None}
    return [_cleaned(item) for item in value] if isinstance(value, list) else value


@given(JSON, st.sampled_from(["", " ", "\n\t"]))
def test_any_json_through_every_reader(value: fastjson.Writable, blank: str) -> None:
    for wire in (fastjson.dumps(value), fastjson.dumps_pretty(value)):
        assert fastjson.loads(wire) == _cleaned(value)
        # Wrapped in an object key, the same text goes through the tolerant parser.
        odd = b"{{'a':1}:" + wire + blank.encode() + b",}"
        assert fastjson.loads(odd) == {(("a", 1),): _cleaned(value)}


@given(PROPERTIES)
def test_properties(properties: dict[str, str]) -> None:
    text = encode_properties(properties)
    assert decode_properties(text) == properties
    assert decode_properties(text.removesuffix("\x02")) == properties


@given(st.text(max_size=200))
def test_properties_of_any_text_encode_to_what_was_read(text: str) -> None:
    properties = decode_properties(text)
    assert decode_properties(encode_properties(properties)) == properties


@given(
    st.lists(
        st.builds(
            BatchEntry,
            body=st.binary(max_size=100),
            properties=PROPERTIES.map(encode_properties),
            flag=INT32,
        ),
        max_size=8,
    )
)
def test_batches(entries: list[BatchEntry]) -> None:
    wire = encode_batch(entries)
    assert decode_batch(wire) == entries


@st.composite
def stored_messages(draw: st.DrawFn) -> tuple[StoredMessage, int]:
    born_v6, store_v6 = draw(st.booleans()), draw(st.booleans())
    system_flag = draw(st.sampled_from([0, 0x2, 0x4, 0x8, 0xC, 0xC0]))
    system_flag |= SystemFlag.BORN_HOST_IPV6 * born_v6 | SystemFlag.STORE_HOST_IPV6 * store_v6
    message = StoredMessage(
        topic=draw(st.text("abc%_-\u20ac", max_size=40)),
        queue_id=draw(INT32),
        queue_offset=draw(INT64),
        log_offset=draw(INT64),
        size=0,
        flag=draw(INT32),
        system_flag=int(system_flag),
        body_crc32=draw(INT32),
        born_at_ms=draw(INT64),
        born_host=draw(IPV6 if born_v6 else IPV4),
        stored_at_ms=draw(INT64),
        store_host=draw(IPV6 if store_v6 else IPV4),
        reconsume_times=draw(INT32),
        prepared_offset=draw(INT64),
        stored_body=draw(st.binary(max_size=200)),
        properties=draw(PROPERTIES),
    )
    return message, draw(st.sampled_from([MAGIC_V1, MAGIC_V2]))


@given(st.lists(stored_messages(), max_size=5))
def test_records(stored: list[tuple[StoredMessage, int]]) -> None:
    wire = b""
    for message, magic in stored:
        record = record_bytes(message, magic=magic)
        message.size = len(record)
        wire += record
    found = decode_records(wire)
    assert found == [message for message, _ in stored]
    for message in found:
        assert decode_offset_id(message.offset_message_id) == (
            message.store_host,
            message.log_offset,
        )


@given(IPV4 | IPV6, INT64)
def test_offset_ids(host: tuple[str, int], log_offset: int) -> None:
    text = encode_offset_id(host, log_offset)
    assert decode_offset_id(text) == decode_offset_id(text.lower()) == (host, log_offset)


WORD = st.text("abcdefXYZ%_-.123", min_size=1, max_size=12)


@given(st.dictionaries(WORD, st.tuples(INT32, INT32, INT32, PROPERTIES), max_size=6), st.booleans())
def test_compressed_registrations(
    topics: dict[str, tuple[int, int, int, dict[str, str]]], mappings: bool
) -> None:
    table = {
        name: TopicConfig(
            name=name,
            read_queue_count=read,
            write_queue_count=write,
            permission=permission,
            attributes=attributes,
        )
        for name, (read, write, permission, attributes) in topics.items()
    }
    body = RegisterBrokerBody()
    body = msgspec.structs.replace(body, table=msgspec.structs.replace(body.table, topics=table))
    assert decode_register_body(zlib.compress(register_bytes(body, mappings=mappings))) == body
    assert decode_register_body(fastjson.encode(body)) == body


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=50))
def test_java_hash_against_its_definition(text: str) -> None:
    units = memoryview(text.encode("utf-16-be"))
    value = 0
    for first in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[first : first + 2], "big")) & 0xFFFF_FFFF
    assert java_hash(text) == value - (1 << 32 if value >> 31 else 0)


@given(st.lists(structs(MessageQueue), max_size=5, unique=True))
def test_object_keys(queues: list[MessageQueue]) -> None:
    table = dict.fromkeys(queues, 7)
    wire = fastjson.dumps({"offsetTable": table})
    assert fastjson.decode(wire, dict[str, dict[MessageQueue, int]]) == {"offsetTable": table}
