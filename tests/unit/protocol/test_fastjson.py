"""fastjson's dialect: a table of its oddities, Apache's own files, and what is refused."""

from __future__ import annotations

import time

import msgspec
import pytest

from ariane.codes import Permission
from ariane.errors import ProtocolError
from ariane.protocol import fastjson
from ariane.protocol.bodies import (
    ConsumerOffsets,
    DataVersion,
    HeartbeatData,
    MessageQueue,
    ResetOffsets,
    SubscriptionGroupTable,
    TopicConfigTable,
)
from ariane.protocol.tolerant_json import Json
from tests.golden.frames import golden_config

QUEUE = (("brokerName", "b"), ("queueId", 0), ("topic", "T"))

QUIRKS: dict[str, tuple[str, Json]] = {
    "standard": ('{"a":[1,-2.5,true,false,null,"x"]}', {"a": [1, -2.5, True, False, None, "x"]}),
    "number as a key": ('{0:"a",1:"b"}', {"0": "a", "1": "b"}),
    "negative number as a key": ("{-1:5}", {"-1": 5}),
    "quoted number as a key": ('{"0":"a"}', {"0": "a"}),
    "object as a key": ('{{"topic":"T","queueId":0,"brokerName":"b"}:12}', {QUEUE: 12}),
    "objects as keys in another map": (
        '{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"maxOffset":5}}}',
        {"offsetTable": {QUEUE: {"maxOffset": 5}}},
    ),
    "name without quotes": ("{name:1,$x:2}", {"name": 1, "$x": 2}),
    "true as a key": ("{true:1}", {"true": 1}),
    "single quotes": ("{'a':'it\"s'}", {"a": 'it"s'}),
    "trailing commas": ('{"a":[1,2,],}', {"a": [1, 2]}),
    "newline at the end": ('{"a":1}\n', {"a": 1}),
    "newline at the end of the odd form": ("{0:1}\r\n \t", {"0": 1}),
    "blanks between": ("{ 0 :\t1 ,\n'b' : 2 }", {"0": 1, "b": 2}),
    "escapes": (r"""{'a':'\'\"\\\/\b\f\n\r\t\v\0\x41\u0042'}""", {"a": "'\"\\/\b\f\n\r\t\v\0AB"}),
    "surrogate pair": (r"{0:'\ud83d\ude00'}", {"0": "\U0001f600"}),
    "raw control character": ("{0:'\x01\n'}", {"0": "\x01\n"}),
    "text beyond ASCII": ("{0:'\u20ac'}", {"0": "\u20ac"}),
    "reference": ('{"a":{"x":1},"b":{"$ref":"$.a"}}', {"a": {"x": 1}, "b": {"x": 1}}),
    "reference into a list": (
        '{"a":[{"x":1}],"b":{"$ref":"$.a[0].x"}}',
        {"a": [{"x": 1}], "b": 1},
    ),
    "reference with a quoted name": (
        r'{"a b":{"c.d":1},"e":{"$ref":"$[\"a b\"][\"c.d\"]"}}',
        {"a b": {"c.d": 1}, "e": 1},
    ),
    "reference in the odd form": ('{0:{"x":1},1:{"$ref":"$.0"}}', {"0": {"x": 1}, "1": {"x": 1}}),
    "reference to the whole, to the parent, to nothing": (
        '{"a":{"$ref":"$"},"b":{"$ref":".."},"c":{"$ref":"$.z.y[3]"},"d":{"$ref":"$.a["}}',
        {"a": None, "b": None, "c": None, "d": None},
    ),
    "a member called $ref is no reference": ('{"$ref":1,"a":2}', {"$ref": 1, "a": 2}),
    "duplicate keys: the last counts": ("{0:1,0:2}", {"0": 2}),
    "big integers": ("{0:9223372036854775807}", {"0": 9223372036854775807}),
    "exponent": ("{0:1.5e3}", {"0": 1500.0}),
}


@pytest.mark.parametrize(("text", "value"), QUIRKS.values(), ids=QUIRKS)
def test_quirks(text: str, value: Json) -> None:
    assert fastjson.loads(text) == value
    assert fastjson.loads(text.encode()) == value


# Ten levels, each holding the one before it fifty times.
MULTIPLYING = (
    '{"0":[1,1,1,1,1,1,1,1,1,1]'
    + "".join(f',"{n + 1}":[' + ",".join([f'{{"$ref":"$.{n}"}}'] * 50) + "]" for n in range(10))
    + "}"
)
REFUSED = {
    "empty": "",
    "blank": "  ",
    "NaN": "{0:NaN}",
    "Infinity": "{0:-Infinity}",
    "undefined": "{0:undefined}",
    "1e999": "{0:1e999}",
    "1,000 digits": "{{'a':1}:" + "1" * 1000 + "}",
    "lone high surrogate": r"{0:'\ud800'}",
    "lone low surrogate": r"{0:'\udc00x'}",
    "unknown escape": r"{0:'\q'}",
    "short \\u": r"{0:'\u12'}",
    "no colon": "{0 1}",
    "no value": "{0:}",
    "comma first": "[,1]",
    "two commas": "{0:1,,}",
    "colon in an array": "[1:2]",
    "more text": "{0:1}{0:1}",
    "wrong bracket": "{0:1]",
    "not closed": "{0:[1",
    "string not closed": "{0:'abc",
    "array as a key": "{[1]:2}",
    "object key with an object in it": "{{'a':{'b':1}}:2}",
    "object key with an object key": "{{{'a':1}:1}:2}",
    "depth 18": "{0:" + "[" * 17 + "]" * 17 + "}",
    "depth 100,000": "{0:" + "[" * 100_000,
    "depth 100,000 of standard JSON": "[" * 100_000 + "]" * 100_000,
    "depth 100,000 of object keys": "{" * 100_000,
    "a cycle of references": '{"a":{"$ref":"$.b"},"b":{"$ref":"$.a"}}',
    "a reference within itself": '{"a":{"x":{"$ref":"$.a"}}}',
    "references that multiply": MULTIPLYING,
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_refused_in_bounded_time(text: str) -> None:
    started = time.perf_counter()
    with pytest.raises(ProtocolError):
        fastjson.loads(text)
    with pytest.raises(ProtocolError):
        fastjson.decode(text.encode(), HeartbeatData)
    assert time.perf_counter() - started < 1


def test_not_utf8_is_refused() -> None:
    for data in (b'{"a":"\xff"}', b"{0:'\xff'}"):
        with pytest.raises(ProtocolError):
            fastjson.loads(data)


def test_odd_text_is_read_up_to_a_size_standard_text_beyond() -> None:
    odd = "{0:'" + "x" * 300_000 + "'}"
    with pytest.raises(ProtocolError, match="262144"):
        fastjson.loads(odd)
    assert fastjson.loads(odd, size_max=1 << 20) == {"0": "x" * 300_000}
    assert fastjson.loads('"' + "x" * 2_000_000 + '"') == "x" * 2_000_000


def test_a_large_body_is_refused_for_the_member_that_is_wrong() -> None:
    subscription = {"topic": "T" * 50, "subString": "*"}
    consumer = {"groupName": "g", "subscriptionDataSet": [subscription] * 5_000}
    data = msgspec.json.encode({"clientID": "c", "consumerDataSet": [consumer]})
    with pytest.raises(ProtocolError, match=r"length <= 4096 - at .*subscriptionDataSet"):
        fastjson.decode(data, HeartbeatData)


def test_a_large_file_with_bare_keys_is_read_quickly() -> None:
    tables = {f"topic{n}@group": dict.fromkeys(range(8), n) for n in range(5_000)}
    data = fastjson.dumps_pretty({"offsetTable": tables})
    started = time.perf_counter()
    assert fastjson.decode(data, ConsumerOffsets, size_max=1 << 30).offsets == tables
    assert time.perf_counter() - started < 2


ODDEST = {
    "numbers": "[" + "1," * 120_000 + "]",
    "objects": "{0:[" + "{}," * 80_000 + "]}",
    "keys": "{" + "0:0," * 60_000 + "}",
    "quotes": "{0:[" + "''," * 80_000 + "]}",
    "escapes": "{0:'" + r"\u0041" * 34_000 + "'}",
    "object keys": "{" + "{'a':0}:0," * 24_000 + "}",
}


@pytest.mark.parametrize("text", ODDEST.values(), ids=ODDEST)
def test_the_largest_odd_text_takes_bounded_time(text: str) -> None:
    assert len(text) > 200_000
    started = time.perf_counter()
    fastjson.loads(text)
    assert time.perf_counter() - started < 2


def test_decode_takes_nulls_ordinals_and_unknown_members() -> None:
    heartbeat = fastjson.decode(
        b'{"clientID":"c","new":{},"heartbeatFingerprint":null,"consumerDataSet":['
        b'{"groupName":"g","consumeType":1,"messageModel":0,"subscriptionDataSet":['
        b'{"topic":"T","subString":"*","codeSet":null,"expressionType":null}]}]}\n',
        HeartbeatData,
    )
    (consumer,) = heartbeat.consumers
    assert consumer.consume_type == "CONSUME_PASSIVELY"
    assert consumer.message_model == "BROADCASTING"
    assert consumer.subscriptions[0].tag_codes == []
    assert heartbeat.fingerprint == 0
    assert heartbeat.producers == []


def test_a_heartbeat_of_the_cpp_client() -> None:
    heartbeat = fastjson.decode(
        b'{"clientID":"14708-127.0.0.1@DEFAULT","consumerDataSet":[{"consumeFromWhere":4,'
        b'"consumeType":1,"groupName":"CID_cpp","messageModel":1,"subscriptionDataSet":['
        b'{"subString":"*","subVersion":"1794963071242","topic":"%RETRY%CID_cpp"}]}],'
        b'"producerDataSet":[{"groupName":"PID-cpp"}]}\n',
        HeartbeatData,
    )
    (consumer,) = heartbeat.consumers
    assert consumer.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
    assert consumer.message_model == "CLUSTERING"
    assert consumer.subscriptions[0].version == 1794963071242


def test_decode_names_the_member() -> None:
    with pytest.raises(ProtocolError, match="clientID"):
        fastjson.decode(b'{"clientID":{}}', HeartbeatData)
    with pytest.raises(ProtocolError, match="DataVersion"):
        fastjson.decode(b'{"counter":"x"}', DataVersion)


def test_object_keys_become_message_queues() -> None:
    queue = MessageQueue(broker_name="b", queue_id=0, topic="T")
    wire = b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:12}}'
    offsets = ResetOffsets(offsets={queue: 12})
    assert fastjson.encode(offsets) == wire
    assert fastjson.decode(wire, ResetOffsets) == offsets
    with pytest.raises(ProtocolError, match="message queue"):
        fastjson.decode(b'{"offsetTable":{{"topic":"T"}:12}}', ResetOffsets)


def test_written_compactly_without_nulls() -> None:
    value = {"b": None, "a": [None, True, 1.5, '\u20ac\x01"'], "n": {2: "x", 10: {}}, "e": []}
    assert (
        fastjson.dumps(value).decode()
        == '{"a":[null,true,1.5,"\u20ac\\u0001\\""],"n":{"2":"x","10":{}},"e":[]}'
    )
    assert fastjson.dumps({1: {0: 2}}, unquoted_keys=True) == b"{1:{0:2}}"
    assert fastjson.dumps([float("nan"), float("inf"), Permission.READ]) == b"[null,null,4]"


def test_pretty_as_apache_writes_it() -> None:
    value = {"b": {10: 1, 2: {}}, "a": ["x", []], "none": None}
    assert fastjson.dumps_pretty(value).decode() == (
        '{\n\t"a":[\n\t\t"x",\n\t\t[]\n\t],\n\t"b":{\n\t\t2:{},\n\t\t10:1\n\t}\n}'
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("consumerOffset.json", ConsumerOffsets),
        ("topics.json", TopicConfigTable),
        ("subscriptionGroup.json", SubscriptionGroupTable),
    ],
)
def test_apache_config_files_come_back_line_for_line(name: str, kind: type[msgspec.Struct]) -> None:
    golden = golden_config(name)
    table = fastjson.decode(golden, kind)
    written = fastjson.dumps_pretty(table)
    assert fastjson.decode(written, kind) == table
    # Java's maps have an order of their own; apart from it, and commas, lines are the same.
    ours = sorted(line.rstrip(b",") for line in written.splitlines())
    assert ours == sorted(line.rstrip(b",") for line in golden.splitlines())


def test_apache_config_file_comes_back_byte_for_byte() -> None:
    golden = golden_config("delayOffset.json")
    value = fastjson.loads(golden)
    assert isinstance(value, dict)
    offsets = value["offsetTable"]
    assert isinstance(offsets, dict)
    rewritten = {**value, "offsetTable": {int(str(level)): at for level, at in offsets.items()}}
    assert fastjson.dumps_pretty(rewritten) == golden  # type: ignore[arg-type]


def test_a_member_of_any_form_is_no_deeper_than_the_rest() -> None:
    """What could not be written again must not be taken in by the quick way either."""
    nested = b'{"a":' * 40 + b"1" + b"}" * 40
    body = b'{"subscriptionGroupTable":{"g":{"groupName":"g","groupRetryPolicy":%s}}}' % nested
    with pytest.raises(ProtocolError, match="nested deeper"):
        fastjson.decode(body, SubscriptionGroupTable)
