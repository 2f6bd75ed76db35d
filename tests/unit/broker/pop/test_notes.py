"""Notes in the revive topic: ours read back, Apache's understood, nonsense passed over."""

from __future__ import annotations

import json

import pytest

from ariane.broker.pop.checkpoints import Key
from ariane.broker.pop.notes import (
    AcksFound,
    CheckpointFound,
    Found,
    Note,
    OrderFound,
    ack_note,
    checkpoint_note,
    order_note,
    read_note,
)
from ariane.broker.pop.order import OrderInfo, Place
from ariane.kernel.pop import Checkpoint
from ariane.protocol.message import StoredMessage, decode_properties

NOW_MS = 1_700_000_000_000
KEY = Key("T", "g", 2, 100, NOW_MS)
DUE_MS = NOW_MS + 60_000


def stored(body: bytes, properties: dict[str, str]) -> StoredMessage:
    return StoredMessage(
        topic="rmq_sys_REVIVE_LOG_DefaultCluster", queue_id=5, queue_offset=42, log_offset=4_200,
        size=300, flag=0, system_flag=0, body_crc32=0, born_at_ms=NOW_MS, born_host=("10.0.0.1", 1),
        stored_at_ms=NOW_MS + 1, store_host=("127.0.0.1", 1), reconsume_times=0, prepared_offset=0,
        stored_body=body, properties=properties,
    )  # fmt: skip


def read(note: Note) -> Found | None:
    return read_note(stored(note.body, decode_properties(note.properties.decode())))


def test_a_checkpoint_is_apaches_with_where_the_group_goes_on() -> None:
    checkpoint = Checkpoint(KEY, 60_000, (0, 1, 5))
    note = checkpoint_note(checkpoint, "broker-a", next_offset=106)
    assert json.loads(note.body) == {
        "bm": 0, "bn": "broker-a", "c": "g", "d": [0, 1, 5], "it": 60_000, "n": 3, "pt": NOW_MS,
        "q": 2, "ro": 0, "so": 100, "t": "T", "xn": 106,
    }  # fmt: skip
    assert note.properties == b"TAGS\x01ck\x02TIMER_DELIVER_MS\x01%d\x02" % (DUE_MS - 1000)
    found = read(note)
    assert isinstance(found, CheckpointFound)
    again = found.checkpoint
    assert (again.key, again.gaps, again.due_ms, again.settled) == (KEY, (0, 1, 5), DUE_MS, 0)
    assert (again.revive_queue_id, again.journal_offset, again.log_offset) == (5, 42, 4_200)
    assert (found.next_offset, found.replaced) == (106, None)


def test_a_checkpoint_as_it_stands_and_whose_message_it_has() -> None:
    checkpoint = Checkpoint(KEY, 60_000, range(32), settled=0x8000_0001, attempts=3)
    found = read(checkpoint_note(checkpoint, "b", replaced=KEY._replace(first=90, popped_ms=5)))
    assert isinstance(found, CheckpointFound)
    assert (found.checkpoint.settled, found.checkpoint.attempts) == (0x8000_0001, 3)
    assert found.replaced == Key("T", "g", 2, 90, 5)
    assert found.next_offset is None


def test_one_acknowledgement_and_several() -> None:
    one = ack_note(KEY, [105], DUE_MS, "broker-a")
    assert json.loads(one.body) == {
        "ao": 105, "bn": "broker-a", "c": "g", "pt": NOW_MS, "q": 2, "so": 100, "t": "T",
    }  # fmt: skip
    assert one.properties == b"TAGS\x01ack\x02TIMER_DELIVER_MS\x01%d\x02" % DUE_MS
    assert read(one) == AcksFound(KEY, [105], DUE_MS)
    several = ack_note(KEY, [100, 105], DUE_MS, "broker-a")
    assert json.loads(several.body)["aol"] == [100, 105]
    assert several.properties.startswith(b"TAGS\x01bAck\x02")
    assert read(several) == AcksFound(KEY, [100, 105], DUE_MS)


def test_the_state_of_an_ordered_queue() -> None:
    info = OrderInfo(
        attempt_id="a", settled=2, invisible_ms=9, lent_ms=NOW_MS, places=[5, 1, 4],
        counts={5: 1}, visible_ms={9: NOW_MS + 5}, popped_ms=NOW_MS,
    )  # fmt: skip
    place = Place("T", "g", 3)
    assert read(order_note(place, 5, info)) == OrderFound(place, 5, info)


@pytest.mark.parametrize("name", ['a "name"', "brökér", "b" * 200])
def test_any_broker_name(name: str) -> None:
    checkpoint = Checkpoint(KEY, 1, (0,))
    for note in (checkpoint_note(checkpoint, name), ack_note(KEY, [100], 1, name)):
        assert json.loads(note.body)["bn"] == name
        assert read(note) is not None


# As Apache's broker wrote them; its timer left its marks in the properties.
TIMED = {
    "TIMER_DELIVER_MS": str(DUE_MS), "TIMER_OUT_MS": str(DUE_MS), "REAL_QID": "5",
    "REAL_TOPIC": "rmq_sys_REVIVE_LOG_DefaultCluster", "TIMER_ENQUEUE_MS": "1",
    "UNIQ_KEY": "T@2@100@g@1700000000000@broker-a@ck",
}  # fmt: skip


def test_apaches_checkpoint() -> None:
    body = (
        b'{"bm":0,"bn":"broker-a","c":"g","d":[0,1],"it":60000,"n":2,"pt":1700000000000,"q":2,'
        b'"ro":0,"so":100,"t":"T"}'
    )
    found = read_note(stored(body, TIMED | {"TAGS": "ck"}))
    assert isinstance(found, CheckpointFound)
    assert (found.checkpoint.key, found.checkpoint.gaps) == (KEY, (0, 1))
    assert (found.next_offset, found.replaced) == (None, None)


def test_an_old_checkpoint_without_distances() -> None:
    body = b'{"bm":3,"c":"g","it":60000,"n":4,"pt":1700000000000,"q":2,"ro":0,"so":100,"t":"T"}'
    found = read_note(stored(body, {"TAGS": "ck"}))
    assert isinstance(found, CheckpointFound)
    assert found.checkpoint.open_offsets() == [102, 103]


def test_a_checkpoint_put_again_by_apache() -> None:
    body = (
        b'{"bm":0,"bn":"b","c":"g","d":[0],"it":70000,"n":1,"pt":1700000000000,"q":2,"ro":0,'
        b'"rp":"2","so":100,"t":"T"}'
    )
    found = read_note(stored(body, {"TAGS": "ck"}))
    assert isinstance(found, CheckpointFound)
    assert found.checkpoint.attempts == 2


NONSENSE = {
    "another tag": (b"{}", "other"),
    "no tag": (b"{}", ""),
    "not JSON": (b"{", "ck"),
    "no topic": (b'{"c":"g","it":1,"n":1,"pt":1,"q":0,"so":0}', "ck"),
    "no messages": (b'{"c":"g","it":1,"n":0,"pt":1,"q":0,"so":0,"t":"T"}', "ck"),
    "too many messages": (b'{"c":"g","it":1,"n":65,"pt":1,"q":0,"so":0,"t":"T"}', "ck"),
    "one twice": (b'{"c":"g","d":[1,1],"it":1,"n":2,"pt":1,"q":0,"so":0,"t":"T"}', "ck"),
    "before the first": (b'{"c":"g","d":[-1],"it":1,"n":1,"pt":1,"q":0,"so":0,"t":"T"}', "ck"),
    "beyond 64 bits": (
        b'{"c":"g","d":[0],"it":1,"n":1,"pt":99999999999999999999,"q":0,"so":0,"t":"T"}',
        "ck",
    ),
    "an acknowledgement of text": (b'{"ao":"x","c":"g","pt":1,"q":0,"so":0,"t":"T"}', "ack"),
    "an order of nothing": (b"[]", "order"),
}


@pytest.mark.parametrize(("body", "tag"), NONSENSE.values(), ids=NONSENSE)
def test_what_nobody_understands_is_passed_over(body: bytes, tag: str) -> None:
    assert read_note(stored(body, {"TAGS": tag} if tag else {})) is None
