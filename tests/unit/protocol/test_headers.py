"""Custom headers: golden ones decode to what they say and encode back; bad ones name the field."""

from __future__ import annotations

import pytest

from ariane.errors import BadHeader
from ariane.protocol.headers import (
    Header,
    clients,
    decode_header,
    encode_header,
    groups,
    nameserver,
    offsets,
    pull,
    query,
    send,
    topics,
)
from tests.golden.frames import GoldenFrame, golden_frames

REQUESTS: dict[int, type[Header]] = {
    10: send.SendHeader,
    11: pull.PullHeader,
    12: query.QueryHeader,
    14: offsets.QueryConsumerOffsetHeader,
    15: offsets.UpdateConsumerOffsetHeader,
    17: topics.CreateTopicHeader,
    29: offsets.SearchOffsetHeader,
    30: offsets.MaxOffsetHeader,
    31: offsets.QueueHeader,
    32: offsets.QueueHeader,
    33: query.ViewHeader,
    35: clients.UnregisterHeader,
    38: groups.ConsumerGroupHeader,
    40: groups.ConsumerGroupHeader,
    102: nameserver.SettingHeader,
    105: topics.TopicHeader,
    202: topics.TopicHeader,
    203: groups.ConsumerGroupHeader,
    207: groups.DeleteGroupHeader,
    208: groups.ConsumeStatsHeader,
    215: topics.TopicHeader,
    216: nameserver.DeleteTopicHeader,
    307: clients.RunningInfoHeader,
    310: send.SendHeaderV2,
    320: send.SendHeaderV2,
    351: topics.TopicHeader,
}
REPLIES: dict[int, type[Header]] = {
    10: send.SendReply,
    310: send.SendReply,
    320: send.SendReply,
    11: pull.PullReply,
    12: query.QueryReply,
    14: offsets.OffsetReply,
    29: offsets.OffsetReply,
    30: offsets.OffsetReply,
    31: offsets.OffsetReply,
    32: offsets.TimestampReply,
    34: clients.HeartbeatReply,
}
# Sent with most requests and of no use to a server: logical topic, request type, and such.
IGNORED = {"ReqT", "bname", "lo", "force", "ns", "nsd", "oway", "indexType"}


def kind_of(golden: GoldenFrame) -> type[Header] | None:
    if golden.answers is None:
        return REQUESTS.get(golden.code)
    return REPLIES.get(golden.code) if golden.is_success else None


def test_golden_headers_decode_and_encode_to_the_same_text() -> None:
    seen = set()
    for golden in golden_frames():
        kind = kind_of(golden)
        if kind is None:
            continue
        seen.add((golden.answers is None, golden.code))
        encoded = encode_header(decode_header(kind, golden.ext))
        expected = {name: value for name, value in golden.ext.items() if name not in IGNORED}
        written = {name: value for name, value in encoded.items() if name not in IGNORED}
        # A default is written out although the client left it to us.
        assert expected.items() <= written.items(), (golden.code, golden.ext)
    assert len(seen) >= 30, f"captures cover only {sorted(seen)}"


@pytest.mark.parametrize("kind", sorted({*REQUESTS.values(), *REPLIES.values()}, key=str))
def test_every_field_has_a_wire_name_of_its_own(kind: type[Header]) -> None:
    names = kind.__struct_encode_fields__
    assert len(set(names)) == len(names)


SEND = send.SendHeaderV2(
    group="g",
    topic="T",
    default_topic="TBW102",
    default_queue_count=4,
    queue_id=-1,
    system_flag=0,
    born_at_ms=1_700_000_000_000,
    flag=0,
    properties="a\x01b\x02",
    is_batch=True,
)


def test_both_spellings_of_a_send_have_the_same_fields() -> None:
    ext = encode_header(SEND)
    assert set(ext) == set("abcdefghim")
    assert send.decode_send_header(ext) == SEND
    assert set(send.SendHeader.__struct_fields__) == set(send.SendHeaderV2.__struct_fields__)
    long_names = {
        "producerGroup": "g",
        "topic": "T",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "-1",
        "sysFlag": "0",
        "bornTimestamp": "1700000000000",
        "flag": "0",
        "properties": "a\x01b\x02",
        "batch": "true",
    }
    spelled_out = send.decode_send_header(long_names)
    assert isinstance(spelled_out, send.SendHeader)
    assert encode_header(spelled_out) == long_names
    for name in SEND.__struct_fields__:
        assert getattr(spelled_out, name) == getattr(SEND, name)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("TRUE", True),
        ("false", False),
        ("1", False),
        ("yes", False),
        ("", False),
        (True, True),
        (False, False),
        (1, True),
        (0, False),
    ],
)
def test_only_the_word_true_is_true(text: str | int | bool, value: bool) -> None:
    header = decode_header(offsets.MaxOffsetHeader, {"topic": "T", "queueId": 0, "committed": text})
    assert header.committed is value


def test_an_absent_flag_has_its_default() -> None:
    assert decode_header(offsets.MaxOffsetHeader, {"topic": "T", "queueId": "0"}).committed
    absent = {"topic": "T", "queueId": "0", "committed": None}
    with pytest.raises(BadHeader):
        decode_header(offsets.MaxOffsetHeader, absent)


def test_numbers_are_taken_as_they_are() -> None:
    header = decode_header(offsets.QueueHeader, {"topic": "T", "queueId": 3})
    assert header == offsets.QueueHeader(topic="T", queue_id=3)


BAD = {
    "missing": ({"topic": "T"}, "queueId"),
    "not a number": ({"topic": "T", "queueId": "x"}, "queueId"),
    "empty": ({"topic": "T", "queueId": ""}, "queueId"),
    "a fraction": ({"topic": "T", "queueId": "1.5"}, "queueId"),
    "beyond 32 bits": ({"topic": "T", "queueId": "2147483648"}, "queueId"),
    "below 32 bits": ({"topic": "T", "queueId": "-2147483649"}, "queueId"),
    "5,000 digits": ({"topic": "T", "queueId": "9" * 5000}, "queueId"),
    "Arabic digits": ({"topic": "T", "queueId": "\u0663"}, "queueId"),
    "nothing at all": ({}, "topic"),
}


@pytest.mark.parametrize(("ext", "name"), BAD.values(), ids=BAD)
def test_bad_header_names_the_field(ext: dict[str, str], name: str) -> None:
    with pytest.raises(BadHeader, match=name):
        decode_header(offsets.QueueHeader, ext)


def test_none_is_left_out_and_defaults_are_written() -> None:
    header = groups.DeleteGroupHeader(group="g")
    assert encode_header(header) == {"groupName": "g", "cleanOffset": "false"}
    assert encode_header(clients.UnregisterHeader(client_id="c")) == {"clientID": "c"}


def test_registration_as_brokers_of_both_lines_send_it() -> None:
    ext = {
        "brokerName": "b",
        "brokerAddr": "10.0.0.1:10911",
        "clusterName": "c",
        "haServerAddr": "10.0.0.1:10912",
        "brokerId": "0",
        "compressed": "false",
        "bodyCrc32": "123",
        "unknown": "x",
    }
    header = decode_header(nameserver.RegisterBrokerHeader, ext)
    assert (header.broker_id, header.body_crc32, header.is_compressed) == (0, 123, False)
    assert header.heartbeat_timeout_ms is None
