"""Sends: what is stored, what is answered, and everything that is refused before it is stored."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import pytest

from ariane.codes import RequestCode, ResponseCode
from ariane.config import BrokerConfig
from ariane.protocol.command import Command, Serializer
from ariane.protocol.message import BatchEntry, encode_batch
from tests.unit.broker.rig import SMALL_STORE, Peer, Rig, send_fields

OURS = "MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02"


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.topic("T")
    return rig


def raw_properties(rig: Rig, topic: str = "T", queue_id: int = 0) -> list[str]:
    """The properties text of every record of a queue, byte for byte."""
    found = rig.state.store.read(topic, queue_id, 0, count_max=1000, tag_codes=None).body
    texts, position = [], 0
    while position < len(found):
        (size,) = struct.unpack_from(">i", found, position)
        record = found[position : position + size]
        (body_size,) = struct.unpack_from(">i", record, 84)
        properties_at = 88 + body_size + 1 + record[88 + body_size]
        (properties_size,) = struct.unpack_from(">h", record, properties_at)
        texts.append(record[properties_at + 2 :].decode())
        assert len(texts[-1].encode()) == properties_size
        position += size
    return texts


# What is stored and answered.


@pytest.mark.parametrize("name", ["a", "c", "d"])
def test_fields_that_apache_s_broker_does_without(rig: Rig, name: str) -> None:
    fields = {key: value for key, value in send_fields().items() if key != name}
    answer = rig.call(RequestCode.SEND_MESSAGE_V2, fields, b"x")
    assert answer.code == ResponseCode.SUCCESS
    fields["b"] = "Unknown"
    answer = rig.call(RequestCode.SEND_MESSAGE_V2, fields, b"x")
    is_made = name != "c"  # from the topic that it names
    assert answer.code == (ResponseCode.SUCCESS if is_made else ResponseCode.TOPIC_NOT_EXIST)


def test_the_answer_says_where_the_message_went_in_apache_s_order(rig: Rig) -> None:
    rig.send(queue_id=2)
    answer = rig.send(queue_id=2)
    first = rig.stored(queue_id=2)[0]
    assert (answer.code, answer.remark, answer.body) == (ResponseCode.SUCCESS, None, b"")
    assert list(answer.ext.items()) == [
        ("queueId", "2"),
        ("transactionId", "K1"),
        ("msgId", f"7F00000100002A9F{first.size:016X}"),
        ("TRACE_ON", "true"),
        ("MSG_REGION", "DefaultRegion"),
        ("queueOffset", "1"),
    ]


def test_the_record_is_the_request_s_own(rig: Rig) -> None:
    rig.send(body=b"\x00\xffbody", properties="KEYS\x01k\x02UNIQ_KEY\x01U\x02", reconsume_times=3)
    (message,) = rig.stored()
    assert (message.topic, message.queue_id, message.queue_offset) == ("T", 0, 0)
    assert message.stored_body == b"\x00\xffbody"
    assert message.born_at_ms == 1_700_000_000_123
    assert message.born_host == ("127.0.0.1", 33632)
    assert message.store_host == ("127.0.0.1", 10911)
    assert message.reconsume_times == 3
    assert message.stored_at_ms == rig.clock.wall_ms()


PROPERTIES = {
    "as sent": ("B\x012\x02UNIQ_KEY\x01U\x02", "B\x012\x02UNIQ_KEY\x01U\x02" + OURS),
    "closed if open": ("UNIQ_KEY\x01U\x02A\x011", "UNIQ_KEY\x01U\x02A\x011\x02" + OURS),
    "ours replace theirs": (
        "MSG_REGION\x01X\x02UNIQ_KEY\x01U\x02CLUSTER\x01Y\x02TRACE_ON\x01false\x02A\x011\x02",
        "UNIQ_KEY\x01U\x02A\x011\x02" + OURS,
    ),
    "a longer name is another name": (
        "XCLUSTER\x01Y\x02UNIQ_KEY\x01U\x02",
        "XCLUSTER\x01Y\x02UNIQ_KEY\x01U\x02" + OURS,
    ),
    "pop's mark is dropped": ("UNIQ_KEY\x01U\x02POP_CK\x010 1 2\x02", "UNIQ_KEY\x01U\x02" + OURS),
    "beyond ASCII": ("A\x01漢字😀\x02UNIQ_KEY\x01U\x02", "A\x01漢字😀\x02UNIQ_KEY\x01U\x02" + OURS),
}  # fmt: skip


@pytest.mark.parametrize(("sent", "stored"), PROPERTIES.values(), ids=PROPERTIES)
def test_properties_are_kept_and_ours_follow(rig: Rig, sent: str, stored: str) -> None:
    assert rig.send(properties=sent).code == ResponseCode.SUCCESS
    assert raw_properties(rig) == [stored]


def test_a_message_without_a_unique_key_gets_one(rig: Rig) -> None:
    answer = rig.send(properties="A\x011\x02")
    key = answer.ext["transactionId"]
    assert len(key) == 32
    assert raw_properties(rig) == [f"A\x011\x02{OURS}UNIQ_KEY\x01{key}\x02"]


def test_the_broker_s_settings_show_in_its_properties(rig: Rig) -> None:
    rig.configure(region="Mars", trace_on=False, cluster="C1")
    answer = rig.send()
    assert (answer.ext["MSG_REGION"], answer.ext["TRACE_ON"]) == ("Mars", "false")
    assert raw_properties(rig)[0].endswith(
        "MSG_REGION\x01Mars\x02TRACE_ON\x01false\x02CLUSTER\x01C1\x02"
    )


LONG_NAMES = {
    "producerGroup": "g", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
    "queueId": 1, "sysFlag": 0, "bornTimestamp": 5, "flag": 9, "properties": "UNIQ_KEY\x01U\x02",
}  # fmt: skip


@pytest.mark.parametrize("code", [10, 310])
@pytest.mark.parametrize("spelling", ["letters", "long names"])
@pytest.mark.parametrize("serializer", list(Serializer))
def test_every_send_code_takes_both_spellings_and_both_serialisations(
    rig: Rig, code: int, spelling: str, serializer: Serializer
) -> None:
    ext = LONG_NAMES if spelling == "long names" else send_fields(queue_id=1)
    answer = rig.call(code, ext, b"x", serializer=serializer)
    assert answer is not None
    assert (answer.code, answer.ext["queueId"]) == (ResponseCode.SUCCESS, "1")
    assert answer.serializer is serializer
    assert len(rig.stored(queue_id=1)) == 1


def test_a_one_way_send_is_stored_and_not_answered(rig: Rig) -> None:
    assert rig.call(RequestCode.SEND_MESSAGE_V2, send_fields(), b"x", flag=2) is None
    assert len(rig.stored()) == 1
    assert rig.call(RequestCode.SEND_MESSAGE_V2, send_fields(topic="../x"), b"x", flag=2) is None
    assert rig.peer.sent == []


def test_a_negative_queue_leaves_the_choice_to_the_broker(rig: Rig) -> None:
    chosen = [int(rig.send(queue_id=-1).ext["queueId"]) for _ in range(40)]
    assert set(chosen) == {0, 1, 2, 3}


def test_the_peer_s_own_address_is_kept_whatever_its_flags_say(rig: Rig) -> None:
    peer = Peer(("2001:db8::5", 999))
    answer = rig.call(RequestCode.SEND_MESSAGE_V2, send_fields(system_flag=0x301), b"x", peer=peer)
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS
    rig.send(system_flag=0x30)
    mapped = Peer(("::ffff:10.1.2.3", 5))
    rig.call(RequestCode.SEND_MESSAGE_V2, send_fields(), b"x", peer=mapped)
    from_afar, from_here, from_near = rig.stored()
    assert (from_near.born_host, from_near.system_flag) == (("10.1.2.3", 5), 0)
    assert (from_afar.born_host, from_afar.system_flag) == (("2001:db8::5", 999), 0x311)
    assert (from_here.born_host, from_here.system_flag) == (("127.0.0.1", 33632), 0)


def test_an_unknown_topic_is_made_from_its_model(rig: Rig) -> None:
    assert rig.send("new", queue_id=3).code == ResponseCode.SUCCESS
    topic = rig.state.topics.get("new")
    assert topic is not None
    assert (topic.write_queue_count, topic.read_queue_count, topic.permission) == (4, 4, 6)


def test_a_retry_topic_is_made_when_it_is_sent_to(rig: Rig) -> None:
    properties = "UNIQ_KEY\x01U\x02RETRY_TOPIC\x01T\x02"
    answer = rig.send("%RETRY%readers", 0, properties=properties, reconsume_times=1)
    assert answer.code == ResponseCode.SUCCESS
    assert len(rig.stored("%RETRY%readers")) == 1


# What is refused, and that nothing of it is stored.


def refused(rig: Rig, code: ResponseCode, **fields: Any) -> str:
    answer = rig.send(**fields)
    assert (answer.code, rig.state.store.written) == (code, 0), answer
    assert answer.remark
    return answer.remark


@pytest.mark.parametrize("topic", ["../../etc/x", "a/b", "a b", "tópic", ".", "a.b", "x\x00", ""])
def test_names_that_cannot_be_topics(rig: Rig, topic: str) -> None:
    refused(rig, ResponseCode.INVALID_PARAMETER, topic=topic)
    assert not rig.disk.exists("consumequeue/" + topic.replace("..", ""))


def test_a_topic_name_that_is_too_long(rig: Rig) -> None:
    refused(rig, ResponseCode.MESSAGE_ILLEGAL, topic="t" * 128)
    assert rig.send("t" * 127).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("queue_id", [4, 2**31 - 1])
def test_a_queue_that_is_not_there(rig: Rig, queue_id: int) -> None:
    assert str(queue_id) in refused(rig, ResponseCode.INVALID_PARAMETER, queue_id=queue_id)


def test_the_wider_of_read_and_write_queues_counts() -> None:
    rig = Rig()
    rig.topic("T", read_queue_count=8, write_queue_count=2)
    assert rig.send(queue_id=7).code == ResponseCode.SUCCESS
    rig.topic("closed", 0)
    assert rig.send("closed", -1).code == ResponseCode.INVALID_PARAMETER


def test_an_unknown_topic_that_may_not_be_made() -> None:
    rig = Rig(BrokerConfig(auto_create_topics=False))
    refused(rig, ResponseCode.TOPIC_NOT_EXIST, topic="new")
    rig = Rig()
    refused(rig, ResponseCode.TOPIC_NOT_EXIST, topic="new", default_topic="none-such")


@pytest.mark.parametrize(
    "topic",
    ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"],
)
def test_topics_of_the_broker_s_own(rig: Rig, topic: str) -> None:
    assert "is forbidden" in refused(rig, ResponseCode.NO_PERMISSION, topic=topic)


def test_a_topic_closed_to_writing(rig: Rig) -> None:
    rig.topic("T", permission=4)
    refused(rig, ResponseCode.NO_PERMISSION)


def test_a_broker_closed_to_writing_refuses_order_topics(rig: Rig) -> None:
    rig.configure(permission=4)
    rig.topic("ordered", is_ordered=True)
    refused(rig, ResponseCode.NO_PERMISSION, topic="ordered")


def test_bodies_too_large_or_missing() -> None:
    rig = Rig(store_config=msgspec.structs.replace(SMALL_STORE, message_bytes_max=1000))
    rig.topic("T")
    refused(rig, ResponseCode.MESSAGE_ILLEGAL, body=b"x" * 1001)
    refused(rig, ResponseCode.MESSAGE_ILLEGAL, body=b"")
    assert rig.send(body=b"x" * 1000).code == ResponseCode.SUCCESS


def test_properties_too_long_even_if_only_by_ours(rig: Rig) -> None:
    base = "UNIQ_KEY\x01U\x02A\x01"
    room = 32_767 - len(OURS) - len(base) - 1
    refused(rig, ResponseCode.MESSAGE_ILLEGAL, properties=base + "x" * (room + 1) + "\x02")
    assert rig.send(properties=base + "x" * room + "\x02").code == ResponseCode.SUCCESS


SPECIAL = {
    "delay nonsense": ("DELAY\x01soon\x02", 0, "DELAY"),
    "transaction flag": ("", 0x4, "transaction"),
    "inner batch": ("INNER_NUM\x015\x02", 0, "inner batches"),
    "inner batch flag": ("", 0x80, "inner batches"),
}


@pytest.mark.parametrize(("properties", "flag", "feature"), SPECIAL.values(), ids=SPECIAL)
def test_what_we_could_not_treat_as_asked_is_refused_by_name(
    rig: Rig, properties: str, flag: int, feature: str
) -> None:
    for batch in (False, True):
        remark = refused(
            rig,
            ResponseCode.MESSAGE_ILLEGAL,
            properties=properties,
            system_flag=flag,
            is_batch=batch,
            body=encode_batch([BatchEntry(body=b"x")]),
        )
        assert feature in remark


def test_no_delay_at_all_is_an_ordinary_message(rig: Rig) -> None:
    assert rig.send(properties="DELAY\x010\x02TRAN_MSG\x01false\x02").code == ResponseCode.SUCCESS


@pytest.mark.parametrize("key", ["DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
def test_a_batch_cannot_be_delayed(rig: Rig, key: str) -> None:
    body = encode_batch([BatchEntry(body=b"x")])
    remark = refused(
        rig,
        ResponseCode.MESSAGE_ILLEGAL,
        properties=f"{key}\x013\x02",
        is_batch=True,
        body=body,
    )
    assert "batch" in remark


# Batches.


def send_batch(rig: Rig, body: bytes, code: int = 320, **fields: Any) -> Command:
    answer = rig.call(code, send_fields(is_batch=True, **fields), body)
    assert answer is not None
    return answer


ENTRIES = [
    BatchEntry(body=b"one", properties="UNIQ_KEY\x01A\x02TAGS\x01t\x02", flag=5),
    BatchEntry(body=b"", properties=""),
    BatchEntry(body=b"three", properties="MSG_REGION\x01theirs"),
]


@pytest.mark.parametrize("code", [320, 310, 10])
def test_a_batch_is_stored_entry_by_entry_with_its_properties_unchanged(
    rig: Rig, code: int
) -> None:
    rig.send()
    answer = send_batch(rig, encode_batch(ENTRIES), code, properties="UNIQ_KEY\x01B\x02X\x01y\x02")
    messages = rig.stored()[1:]
    assert [message.stored_body for message in messages] == [b"one", b"", b"three"]
    assert raw_properties(rig)[1:] == [entry.properties for entry in ENTRIES]
    assert [message.flag for message in messages] == [5, 0, 0]
    assert list(answer.ext.items()) == [
        ("queueId", "0"),
        ("transactionId", "B"),
        ("msgId", ",".join(message.offset_message_id for message in messages)),
        ("TRACE_ON", "true"),
        ("MSG_REGION", "DefaultRegion"),
        ("queueOffset", "1"),
    ]


def test_a_batch_without_a_unique_key_gets_no_transaction_id(rig: Rig) -> None:
    assert "transactionId" not in send_batch(rig, encode_batch(ENTRIES), properties="").ext


GOOD = encode_batch([BatchEntry(body=b"good", properties="A\x011\x02")])


def entry(size: int, body_size: int, properties_size: int, rest: bytes) -> bytes:
    head = struct.pack(">iiiii", size, 0, 0, 0, body_size)
    return head + b"b" * max(body_size, 0) + struct.pack(">h", properties_size) + rest


LIES = {
    "ends early": GOOD[:-1],
    "ends in a head": GOOD + b"\x00\x00\x00\x20",
    "whole size too small": GOOD + entry(23, 2, 0, b""),
    "whole size too large": GOOD + entry(25, 2, 0, b""),
    "whole size zero": GOOD + entry(0, 2, 0, b""),
    "whole size negative": GOOD + entry(-24, 2, 0, b""),
    "body size negative": GOOD + entry(22, -1, 0, b""),
    "body size huge": GOOD + struct.pack(">iiiii", 2**31 - 1, 0, 0, 0, 2**31 - 1),
    "properties size negative": GOOD + entry(23, 2, -1, b"x"),
    "properties beyond the end": GOOD + entry(24 + 50, 2, 50, b"x" * 49),
    "empty": b"",
}


@pytest.mark.parametrize("body", LIES.values(), ids=LIES)
def test_a_batch_whose_sizes_lie_is_refused_before_anything_is_written(
    rig: Rig, body: bytes
) -> None:
    answer = send_batch(rig, body)
    assert (answer.code, rig.state.store.written) == (ResponseCode.MESSAGE_ILLEGAL, 0)


def test_a_batch_to_a_retry_topic_is_refused(rig: Rig) -> None:
    answer = send_batch(rig, GOOD, topic="%RETRY%g")
    assert (answer.code, rig.state.store.written) == (ResponseCode.MESSAGE_ILLEGAL, 0)
