"""Transactions at the broker: what is stored, asked, delivered, and what a crash leaves of it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from ariane.broker.check_backs import CheckBacks
from ariane.broker.consume_offsets import OFFSETS_PATH
from ariane.broker.half_messages import FIRST_OFFSET_KEY, copy_of, moved_record, operation_of
from ariane.codes import RequestCode, ResponseCode, SystemFlag
from ariane.config import BrokerConfig
from ariane.disk import CrashMode
from ariane.errors import DiskFull
from ariane.protocol.message import BatchEntry, decode_records, encode_batch
from ariane.topics import DISCARD_TOPIC, HALF_TOPIC, OPERATION_TOPIC, TRANSACTION_GROUP
from tests.unit.broker.rig import SMALL_STORE, Rig
from tests.unit.broker.transacting import (
    COMMIT,
    GROUP,
    ROLLBACK,
    UNKNOWN,
    Bank,
    Begun,
    checks,
    end_fields,
)

OURS = "MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02"


@pytest.fixture
def bank() -> Bank:
    return Bank()


# Half messages.


def test_a_half_message_lies_in_a_topic_of_its_own(bank: Bank) -> None:
    answer = bank.send(
        queue_id=3,
        properties=f"KEYS\x01k\x02TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02UNIQ_KEY\x01U\x02",
        system_flag=0x4 | 0x1,
    )
    (half,) = bank.halves()
    assert (half.queue_id, half.queue_offset, half.system_flag) == (0, 0, 0x1)
    assert half.properties | {"KEYS": "k"} == {
        "KEYS": "k", "TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": "U",
        "MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster",
        "__transactionId__": "U", "REAL_TOPIC": "T", "REAL_QID": "3",
    }  # fmt: skip
    assert bank.delivered(queue_id=3) == []
    assert answer.ext["msgId"] == half.offset_message_id
    assert (answer.ext["queueId"], answer.ext["queueOffset"]) == ("3", "0")
    assert answer.ext["transactionId"] == "U"


def test_what_is_the_broker_s_to_say_is_not_taken_from_a_producer(bank: Bank) -> None:
    bank.begin(
        more="REAL_TOPIC\x01X\x02REAL_QID\x019\x02TRANSACTION_CHECK_TIMES\x0115\x02"
        "TRAN_PREPARED_QUEUE_OFFSET\x010\x02__transactionId__\x01X\x02"
    )
    (half,) = bank.halves()
    assert (half.properties["REAL_TOPIC"], half.properties["REAL_QID"]) == ("T", "1")
    assert half.properties["__transactionId__"] == "K"
    assert "TRANSACTION_CHECK_TIMES" not in half.properties
    assert "TRAN_PREPARED_QUEUE_OFFSET" not in half.properties


def test_the_producer_s_group_is_known_even_if_the_message_does_not_say(bank: Bank) -> None:
    bank.send(properties="TRAN_MSG\x01true\x02")
    assert bank.halves()[0].properties["PGROUP"] == "producers"


def test_transactions_may_be_refused(bank: Bank) -> None:
    bank.configure(rejects_transactions=True)
    answer = bank.send(properties="TRAN_MSG\x01TRUE\x02")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "the broker[127.0.0.1] sending transaction message is forbidden" in str(answer.remark)


def test_a_flag_without_the_property_is_refused(bank: Bank) -> None:
    answer = bank.send(system_flag=0x4)
    assert (answer.code, "TRAN_MSG" in str(answer.remark)) == (ResponseCode.MESSAGE_ILLEGAL, True)


def test_a_batch_cannot_be_transactional(bank: Bank) -> None:
    for properties, flag in (("TRAN_MSG\x01true\x02", 0), ("", 0x4)):
        body = encode_batch([BatchEntry(body=b"x")])
        answer = bank.send(properties=properties, system_flag=flag, body=body, is_batch=True)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "batch" in str(answer.remark)


def test_a_consumed_message_sent_back_begins_no_transaction(bank: Bank) -> None:
    properties = "TRAN_MSG\x01true\x02UNIQ_KEY\x01K\x02DELAY\x011\x02"
    bank.send(properties=properties, system_flag=0x4, reconsume_times=1)
    assert bank.halves() == []
    assert bank.stored("SCHEDULE_TOPIC_XXXX")[0].system_flag == 0


def test_properties_leave_room_for_those_of_copies(bank: Bank) -> None:
    base = f"TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02UNIQ_KEY\x01K\x02A\x01"
    added = len("__transactionId__\x01K\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02")
    room = 32_767 - 128 - len(OURS) - len(base) - added - 1
    assert bank.send(properties=base + "x" * room + "\x02").code == ResponseCode.SUCCESS
    answer = bank.send(properties=base + "x" * (room + 1) + "\x02")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    producer = bank.producer()
    bank.clock.advance(15 * 30 + 10)
    assert len(list(checks(producer))) == 15


# How they end.


def test_a_commit_gives_the_message_to_its_consumers(bank: Bank) -> None:
    half = bank.begin(more="TAGS\x01A\x02", reconsume_times=2, queue_id=2)
    assert bank.end(half).code == ResponseCode.SUCCESS
    (stored,) = bank.halves()
    (message,) = bank.stored(queue_id=2)
    assert message.stored_body == b"body of K"
    assert message.properties == {
        name: value for name, value in stored.properties.items() if not name.startswith("REAL_")
    }
    assert message.system_flag == SystemFlag.TRANSACTION_COMMIT
    assert message.prepared_offset == half.log_offset
    assert message.reconsume_times == 2
    assert (message.born_at_ms, message.born_host) == (stored.born_at_ms, stored.born_host)


def test_a_rollback_gives_it_to_nobody(bank: Bank) -> None:
    half = bank.begin()
    assert bank.end(half, ROLLBACK).code == ResponseCode.SUCCESS
    bank.clock.advance(600)
    assert bank.delivered() == []
    assert len(bank.halves()) == 1


def test_a_held_pull_hears_of_a_commit(bank: Bank) -> None:
    half = bank.begin()
    assert bank.pull(queue_id=1, sysFlag=6, suspendTimeoutMillis=15_000) is None
    bank.end(half)
    bank.clock.advance(0.1)
    (answer,) = bank.peer.sent
    assert decode_records(answer.body)[0].properties["UNIQ_KEY"] == "K"


def test_unknown_is_no_decision(bank: Bank) -> None:
    half = bank.begin()
    assert bank.end(half, UNKNOWN).code == ResponseCode.SUCCESS
    assert bank.end(half, COMMIT).code == ResponseCode.SUCCESS
    assert bank.delivered() == ["K"]


def test_a_commit_said_twice_delivers_once(bank: Bank) -> None:
    half = bank.begin()
    assert [bank.end(half).code for _ in range(3)] == [ResponseCode.SUCCESS] * 3
    assert bank.delivered() == ["K"]


def test_the_first_decision_stands(bank: Bank) -> None:
    first, second = bank.begin("A"), bank.begin("B")
    bank.end(first, COMMIT)
    bank.end(second, ROLLBACK)
    for half, decision, how in ((first, ROLLBACK, "committed"), (second, COMMIT, "rolled back")):
        answer = bank.end(half, decision)
        assert answer.code == ResponseCode.ILLEGAL_OPERATION
        assert how in str(answer.remark)
    assert bank.delivered() == ["A"]


def test_a_decision_comes_one_way_without_an_answer(bank: Bank) -> None:
    half = bank.begin()
    assert bank.call(RequestCode.END_TRANSACTION, end_fields(half, COMMIT), flag=2) is None
    assert bank.delivered() == ["K"]


def test_refusals_nobody_hears_are_logged_but_not_each(
    bank: Bank, caplog: pytest.LogCaptureFixture
) -> None:
    half = bank.begin()
    for _ in range(100):
        fields = end_fields(half, COMMIT, producerGroup="others")
        bank.call(RequestCode.END_TRANSACTION, fields, flag=2)
    bank.clock.advance(11)
    bank.call(RequestCode.END_TRANSACTION, fields, flag=2)
    texts = [each.getMessage() for each in caplog.records if "not ended" in each.getMessage()]
    assert [text.partition(" last=")[0] for text in texts] == [
        "transactions not ended count=1",
        "transactions not ended count=100",
    ]


REFUSED = {
    "another group": ({"producerGroup": "others"}, ResponseCode.SYSTEM_ERROR, "producer group"),
    "another queue offset": ({"tranStateTableOffset": 0}, ResponseCode.SYSTEM_ERROR, "prepared"),
    "a queue offset below all": ({"tranStateTableOffset": -1}, ResponseCode.SYSTEM_ERROR, "prep"),
    "another log offset": ({"commitLogOffset": 7}, ResponseCode.SYSTEM_ERROR, "prepared"),
    "a huge log offset": ({"commitLogOffset": 2**62}, ResponseCode.SYSTEM_ERROR, "prepared"),
    "no such decision": ({"commitOrRollback": 4}, ResponseCode.INVALID_PARAMETER, "commitOr"),
    "no number": ({"commitOrRollback": "yes"}, ResponseCode.SYSTEM_ERROR, "commitOrRollback"),
}


@pytest.mark.parametrize(("fields", "code", "word"), REFUSED.values(), ids=REFUSED)
def test_refused(bank: Bank, fields: dict[str, object], code: int, word: str) -> None:
    bank.begin("first")
    half = bank.begin("second")
    answer = bank.end(half, **fields)
    assert (answer.code, word in str(answer.remark)) == (code, True), answer.remark
    assert bank.delivered() == []
    assert bank.end(half).code == ResponseCode.SUCCESS


def test_only_half_messages_can_be_committed(bank: Bank) -> None:
    """A record that says it is a half message, and lies in the body of another, is none."""
    forged = bank.begin("forged")
    record = bank.state.store.record_at(forged.log_offset)
    assert record is not None
    answer = bank.send(body=record, queue_id=1)
    outer = int(answer.ext["msgId"][16:], 16)
    inside = Begun(outer + 88, forged.queue_offset, "forged")
    assert bank.end(inside).code == ResponseCode.SYSTEM_ERROR
    assert bank.end(Begun(outer, 0, "K1")).code == ResponseCode.SYSTEM_ERROR


def test_a_message_of_a_deleted_topic_stays_open(bank: Bank) -> None:
    half = bank.begin()
    topic = bank.state.topics.existing("T")
    bank.state.topics.delete("T")
    assert bank.end(half).code == ResponseCode.TOPIC_NOT_EXIST
    bank.state.topics.put(topic)
    assert bank.end(half).code == ResponseCode.SUCCESS
    assert bank.delivered() == ["K"]


def test_a_commit_that_finds_no_room_stays_open(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = bank.begin()
    monkeypatch.setattr(bank.state.store, "disk_full_reason", "full")
    assert bank.end(half).code == ResponseCode.SERVICE_NOT_AVAILABLE
    monkeypatch.undo()
    assert bank.end(half).code == ResponseCode.SUCCESS
    assert bank.delivered() == ["K"]


def test_a_delayed_message_is_delayed_from_its_commit_on(bank: Bank) -> None:
    half = bank.begin(more="DELAY\x012\x02")
    assert len(bank.halves()) == 1
    bank.end(half)
    assert bank.delivered() == []
    (waiting,) = bank.stored("SCHEDULE_TOPIC_XXXX", 1)
    assert (waiting.properties["REAL_TOPIC"], waiting.properties["REAL_QID"]) == ("T", "1")


def test_a_delay_that_cannot_be_met_is_refused_before_the_transaction_begins(bank: Bank) -> None:
    answer = bank.send(properties="TRAN_MSG\x01true\x02DELAY\x01soon\x02")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert bank.halves() == []


# Notes.


def test_notes_are_gathered(bank: Bank) -> None:
    halves = [bank.begin(str(number)) for number in range(5)]
    for half in halves[:3]:
        bank.end(half)
    assert bank.notes() == []
    bank.clock.advance(2)
    bank.end(halves[4], ROLLBACK)
    bank.clock.advance(1)
    assert bank.notes() == ["0,1,2,4,"]
    (note,) = bank.stored(OPERATION_TOPIC)
    assert (note.tags, note.queue_id) == ("d", 0)


def test_notes_are_written_when_there_is_much_to_say(bank: Bank) -> None:
    bank.configure(operation_bytes_max=10)
    for number in range(14):
        bank.end(bank.begin(str(number)), ROLLBACK)
    assert bank.notes() == ["0,1,2,3,4,", "5,6,7,8,9,", "10,11,12,13,"]


def test_notes_that_find_no_room_are_written_later(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank.end(bank.begin(), ROLLBACK)
    monkeypatch.setattr(type(bank.state.store), "refusal", DiskFull("full"))
    bank.clock.advance(5)
    assert bank.notes() == []
    monkeypatch.undo()
    bank.clock.advance(1)
    assert bank.notes() == ["0,"]


# Checks.


def test_a_producer_is_asked_after_six_seconds_and_then_every_thirty(bank: Bank) -> None:
    producer = bank.producer()
    bank.clock.advance(23.5)
    bank.begin("A")
    bank.clock.advance(1.0)
    bank.begin("B")
    bank.clock.advance(5.6)  # the first round
    ((asked, shown),) = checks(producer)
    assert asked.key == "A"
    assert (shown.topic, shown.queue_id) == ("T", 1)
    assert shown.stored_body == b"body of A"
    assert shown.properties["TRANSACTION_CHECK_TIMES"] == "1"
    bank.clock.advance(29)
    assert list(checks(producer)) == []
    bank.clock.advance(1)
    assert [each.key for each, _ in checks(producer)] == ["B", "A"]


def test_what_a_check_shows_can_be_committed(bank: Bank) -> None:
    producer = bank.producer()
    first = bank.begin()
    bank.clock.advance(36)
    (command,) = producer.sent
    assert command.ext["bname"] == "broker-a"
    assert command.ext["topic"] == HALF_TOPIC
    assert command.ext["transactionId"] == command.ext["msgId"] == "K"
    copy = bank.halves()[-1]
    assert command.ext["offsetMsgId"] == copy.offset_message_id
    ((asked, _),) = checks(producer)
    assert (asked.log_offset, asked.queue_offset) == (copy.log_offset, 1)
    assert bank.end(asked, fromTransactionCheck="true").code == ResponseCode.SUCCESS
    (message,) = bank.stored(queue_id=1)
    assert message.prepared_offset == asked.log_offset
    assert bank.end(first).code == ResponseCode.SUCCESS
    assert bank.delivered() == ["K"]
    bank.clock.advance(100)
    assert producer.sent == []


def test_a_producer_that_is_gone_is_not_asked_but_the_next_one(bank: Bank) -> None:
    producers = [bank.producer(port=port) for port in (1000, 1001, 1002)]
    for number in range(6):
        bank.begin(str(number))
    producers[1].close()
    producers[2].unread_bytes = 64 << 20
    bank.clock.advance(36)
    assert [len(list(checks(producer))) for producer in producers] == [6, 0, 0]
    producers[0].close()
    bank.clock.advance(30)
    assert [len(list(checks(producer))) for producer in producers] == [0, 0, 6]


def test_producers_share_the_questions(bank: Bank) -> None:
    producers = [bank.producer(port=port) for port in (1000, 1001)]
    bank.producer("others", 1003)
    for number in range(6):
        bank.begin(str(number))
    bank.clock.advance(36)
    assert [len(list(checks(producer))) for producer in producers] == [3, 3]


def test_after_fifteen_checks_it_is_discarded(bank: Bank) -> None:
    producer = bank.producer()
    half = bank.begin()
    bank.clock.advance(600)
    asked = list(checks(producer))
    assert [shown.properties["TRANSACTION_CHECK_TIMES"] for _, shown in asked] == [
        str(times) for times in range(1, 16)
    ]
    (discarded,) = bank.stored(DISCARD_TOPIC)
    assert discarded.stored_body == b"body of K"
    assert discarded.properties["REAL_TOPIC"] == "T"
    for each in (half, asked[0][0], asked[-1][0]):
        answer = bank.end(each, fromTransactionCheck="true")
        assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert DISCARD_TOPIC in str(bank.end(half).remark)
    assert bank.delivered() == []
    topic = bank.state.topics.existing(DISCARD_TOPIC)
    assert (topic.read_queue_count, topic.write_queue_count, topic.permission) == (1, 1, 6)


def test_checks_count_even_if_there_is_nobody_to_ask(bank: Bank) -> None:
    bank.configure(transaction_check_max=2)
    bank.begin()
    bank.clock.advance(120)
    assert len(bank.stored(DISCARD_TOPIC)) == 1


def test_what_outlives_the_log_is_discarded() -> None:
    bank = Bank(store_config=msgspec.structs.replace(SMALL_STORE, retention_hours=2))
    bank.configure(transaction_check_max=1000)
    producer = bank.producer()
    bank.begin(more="CHECK_IMMUNITY_TIME_IN_SECONDS\x0136000\x02")
    bank.clock.advance(7100)
    assert bank.stored(DISCARD_TOPIC) == []
    bank.clock.advance(160)
    assert producer.sent == []
    assert len(bank.stored(DISCARD_TOPIC)) == 1


def test_settings_take_effect_while_it_runs(bank: Bank) -> None:
    producer = bank.producer()
    bank.configure(transaction_check_interval_ms=1_000, transaction_timeout_ms=2_000)
    bank.clock.advance(30)
    bank.begin()
    bank.clock.advance(2)
    assert list(checks(producer)) == []
    bank.clock.advance(1.1)
    assert len(list(checks(producer))) == 1
    bank.clock.advance(1)
    assert len(list(checks(producer))) == 1


def test_a_message_may_ask_for_time(bank: Bank) -> None:
    producer = bank.producer()
    half = bank.begin("A", more="CHECK_IMMUNITY_TIME_IN_SECONDS\x01100\x02")
    bank.begin("B")
    bank.clock.advance(99)
    assert {each.key for each, _ in checks(producer)} == {"B"}
    assert bank.end(half).code == ResponseCode.SUCCESS
    assert bank.delivered() == ["A"]


def test_and_then_only_an_answer_to_a_check_ends_it(bank: Bank) -> None:
    producer = bank.producer()
    half = bank.begin(more="CHECK_IMMUNITY_TIME_IN_SECONDS\x0110\x02")
    bank.clock.advance(10.1)
    assert bank.end(half).code == ResponseCode.ILLEGAL_OPERATION
    assert bank.end(half, ROLLBACK).code == ResponseCode.ILLEGAL_OPERATION
    bank.clock.advance(30)
    ((asked, _),) = checks(producer)
    assert bank.end(asked).code == ResponseCode.ILLEGAL_OPERATION
    assert bank.end(asked, fromTransactionCheck="true").code == ResponseCode.SUCCESS
    assert bank.delivered() == ["K"]


def test_a_time_too_short_does_not_refuse_a_quick_decision(bank: Bank) -> None:
    half = bank.begin(more="CHECK_IMMUNITY_TIME_IN_SECONDS\x011\x02")
    bank.clock.advance(5)
    assert bank.end(half).code == ResponseCode.SUCCESS


def test_a_time_that_is_no_number_is_not_asked_for(bank: Bank) -> None:
    producer = bank.producer()
    bank.begin(more="CHECK_IMMUNITY_TIME_IN_SECONDS\x01long\x02")
    bank.clock.advance(36)
    assert len(list(checks(producer))) == 1


def test_a_producer_s_clock_does_not_matter(bank: Bank) -> None:
    """Born long ago by its own clock, it is neither asked early nor discarded."""
    producer = bank.producer()
    bank.clock.step_wall(1_000 * 3_600_000)
    bank.clock.advance(25)
    bank.begin()
    bank.clock.advance(6)
    assert producer.sent == []
    bank.clock.advance(30)
    assert len(list(checks(producer))) == 1
    assert bank.stored(DISCARD_TOPIC) == []


def test_progress_is_kept_as_rocketmq_keeps_it(bank: Bank) -> None:
    bank.end(bank.begin("A"))
    bank.begin("B")
    assert bank.progress() == (None, None)
    bank.clock.advance(40)
    assert bank.progress() == (2, 1)


def test_progress_is_not_saved_ahead_of_the_log_it_rests_on(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank.begin()
    bank.clock.timers.clear()  # nothing flushes from here on
    bank.clock.advance(36)
    with monkeypatch.context() as patch:
        patch.setattr(bank.state.store, "flush", lambda: None)
        bank.state.transactions.check()
        assert len(bank.halves()) == 2
        assert not bank.disk.exists(OFFSETS_PATH)
    bank.state.store.flush()
    assert b"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS" in bank.disk.read(OFFSETS_PATH)


def test_a_round_that_finds_no_room_goes_on_at_the_next(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = bank.producer()
    bank.begin()
    monkeypatch.setattr(type(bank.state.store), "refusal", DiskFull("full"))
    bank.clock.advance(36)
    assert producer.sent == []
    monkeypatch.undo()
    bank.clock.advance(30)
    assert [shown.properties["TRANSACTION_CHECK_TIMES"] for _, shown in checks(producer)] == ["1"]


# Discarded messages given a new try.


def resume(bank: Rig, message_id: str) -> int:
    fields = {"topic": DISCARD_TOPIC, "msgId": message_id}
    answer = bank.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, fields)
    assert answer is not None
    return answer.code


def test_a_discarded_message_can_be_resumed_once(bank: Bank) -> None:
    bank.configure(transaction_check_max=1)
    bank.begin()
    bank.clock.advance(90)
    (discarded,) = bank.stored(DISCARD_TOPIC)
    producer = bank.producer()
    assert resume(bank, discarded.offset_message_id) == ResponseCode.SUCCESS
    assert resume(bank, discarded.offset_message_id) == ResponseCode.SYSTEM_ERROR
    bank.clock.advance(40)
    ((asked, shown),) = checks(producer)
    assert shown.properties["TRANSACTION_CHECK_TIMES"] == "1"
    bank.end(asked, fromTransactionCheck="true")
    assert bank.delivered() == ["K"]


def test_nothing_else_can_be_resumed(bank: Bank) -> None:
    half = bank.begin()
    other = bank.send().ext["msgId"]
    host = other[:16]
    for message_id in ("", "x", other, f"{host}{half.log_offset:016X}", f"{host}{2**40:016X}"):
        assert resume(bank, message_id) != ResponseCode.SUCCESS
    assert len(bank.halves()) == 1


# Restarts.


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_open_transactions_survive(bank: Bank, way: str) -> None:
    committed, rolled_back, half = bank.begin("A"), bank.begin("B"), bank.begin("C")
    bank.end(committed)
    bank.end(rolled_back, ROLLBACK)
    bank.clock.advance(3)
    bank = bank.restarted() if way == "stop" else bank.killed()
    assert bank.end(committed, COMMIT).code == ResponseCode.ILLEGAL_OPERATION
    producer = bank.producer()
    bank.clock.advance(36)
    ((asked, _),) = checks(producer)
    assert asked.key == "C"
    bank.end(half)
    bank.end(asked, fromTransactionCheck="true")
    bank.clock.advance(60)
    assert bank.delivered() == ["A", "C"]
    assert producer.sent == []


def test_a_clean_stop_notes_everything(bank: Bank) -> None:
    bank.end(bank.begin("A"))
    bank.begin("B")
    bank = bank.restarted()
    assert bank.notes() == ["0,"]
    assert bank.progress() == (1, 1)


def test_a_commit_whose_note_was_lost_is_found_in_the_log(bank: Bank) -> None:
    half, other = bank.begin("A"), bank.begin("B")
    bank.end(half)
    bank = bank.killed()
    assert bank.notes() == []
    answer = bank.end(half)
    assert answer.code == ResponseCode.SUCCESS  # it is known how it ended
    assert bank.end(half, ROLLBACK).code == ResponseCode.ILLEGAL_OPERATION
    producer = bank.producer()
    bank.clock.advance(36)
    assert [each.key for each, _ in checks(producer)] == ["B"]
    bank.end(other)
    assert bank.delivered() == ["A", "B"]
    assert "".join(bank.notes()).startswith("0,")


def test_a_commit_of_a_first_half_is_found_though_a_copy_stands_for_it(bank: Bank) -> None:
    half = bank.begin()
    bank.clock.advance(36)
    bank.end(half)
    bank = bank.killed()
    assert bank.end(half).code == ResponseCode.ILLEGAL_OPERATION  # it has ended, who knows how
    producer = bank.producer()
    bank.clock.advance(36)
    assert producer.sent == []
    assert bank.delivered() == ["K"]


@pytest.mark.parametrize("is_noted", [False, True])
@pytest.mark.parametrize("is_progress_saved", [False, True])
def test_a_commit_is_found_in_front_of_a_copy_that_apache_made_too_late(
    bank: Bank, *, is_progress_saved: bool, is_noted: bool
) -> None:
    """It copies what has ended until its note of that is written, and does not say of what."""
    half, other = bank.begin("A"), bank.begin("B")
    bank.end(half)
    for stored in bank.halves():
        mark = f"{FIRST_OFFSET_KEY}\x010\x02".encode()
        copy = copy_of(stored, 0, check_times=1)
        assert mark in copy.properties
        bank.state.store.append(replace(copy, properties=copy.properties.replace(mark, b"")))
    if is_noted:  # of the half that was committed, not of its copy
        note = operation_of([half.queue_offset], host=("127.0.0.1", 1), now_ms=1)
        bank.state.store.append(note)
        bank.clock.timers.clear()  # no round, no note of ours
        bank.clock.advance(60)
        bank.clock.timers.append(bank.timers)
        bank.send()  # so the note is an old one, and nothing in front of it is looked at
    if is_progress_saved:  # past what was copied
        bank.state.offsets.commit(HALF_TOPIC, TRANSACTION_GROUP, 0, 2)
        bank.state.offsets.save_now()
    bank = bank.killed()
    assert bool(bank.notes()) == is_noted
    producer = bank.producer()
    bank.clock.advance(36)
    ((asked, _),) = checks(producer)
    assert asked.key == "B"
    bank.end(half)
    bank.end(asked, fromTransactionCheck="true")
    bank.end(other)
    assert bank.delivered() == ["A", "B"]


def test_a_copy_stands_for_its_first_half_after_a_kill(bank: Bank) -> None:
    bank.begin()
    bank.clock.advance(20)
    bank.check_before_a_crash()
    bank = bank.killed()
    assert bank.progress() == (None, None)
    producer = bank.producer()
    bank.clock.advance(30)
    ((asked, shown),) = checks(producer)
    assert shown.properties["TRANSACTION_CHECK_TIMES"] == "2"
    bank.end(asked, fromTransactionCheck="true")
    assert bank.delivered() == ["K"]


def test_a_discard_is_not_repeated_after_a_kill(bank: Bank) -> None:
    bank.configure(transaction_check_max=1)
    bank.begin()
    bank.clock.advance(50)
    bank.check_before_a_crash()
    assert len(bank.stored(DISCARD_TOPIC)) == 1
    bank = bank.killed()
    bank.clock.advance(60)
    assert len(bank.stored(DISCARD_TOPIC)) == 1


def test_a_power_cut_loses_no_half_message_that_was_safe() -> None:
    bank = Bank(BrokerConfig(), msgspec.structs.replace(SMALL_STORE, flush_mode="SYNC_FLUSH"))
    for number in range(20):
        half = bank.begin(str(number))
        if number % 3 == 0:
            bank.end(half)
    bank.clock.advance(41)
    bank = bank.killed(CrashMode.DROP)
    producer = bank.producer()
    bank.clock.advance(60)
    for asked, _ in checks(producer):
        bank.end(asked, fromTransactionCheck="true")
    assert sorted(bank.delivered(), key=int) == [str(number) for number in range(20)]


def test_progress_beyond_the_queue_is_not_believed(bank: Bank) -> None:
    bank.state.offsets.commit(HALF_TOPIC, "CID_RMQ_SYS_TRANS", 0, 1000)
    bank.state.offsets.commit(OPERATION_TOPIC, "CID_RMQ_SYS_TRANS", 0, 1000)
    bank.state.offsets.save()
    bank = bank.killed()
    bank.begin()
    producer = bank.producer()
    bank.clock.advance(36)
    assert len(list(checks(producer))) == 1


def test_a_note_about_what_came_later_is_not_believed(bank: Bank) -> None:
    """Numbers a note cannot have known: from a log whose end was lost, or no numbers at all."""
    note = operation_of([0], host=("127.0.0.1", 1), now_ms=1)
    bank.state.store.append(replace(note, body=b"0,1,999999999,x,,-5,"))
    bank.begin("A")
    bank.begin("B")
    bank = bank.killed()
    producer = bank.producer()
    bank.clock.advance(36)
    assert [each.key for each, _ in checks(producer)] == ["A", "B"]


# Records as producers see them.


@pytest.mark.parametrize("topic", ["T", "t" * 127, "%RETRY%" + "g" * 200], ids=len)
@pytest.mark.parametrize("peer", ["127.0.0.1", "::1"])
def test_a_record_moved_is_the_same_but_for_its_topic(topic: str, peer: str) -> None:
    bank = Bank()
    bank.peer.peer = (peer, 7)
    bank.begin()
    (half,) = bank.halves()
    record = bank.state.store.record_at(half.log_offset)
    assert record is not None
    (moved,) = decode_records(moved_record(record, topic, 77))
    assert moved == msgspec.structs.replace(half, topic=topic, queue_id=77, size=moved.size)


def test_a_half_message_larger_than_is_allowed_by_now_stops_no_check(bank: Bank) -> None:
    producer = bank.producer()
    bank.begin("large", body=b"x" * 800)
    bank.begin("small")
    bank.state.store.log.record_bytes_max = 600  # as after a restart with a lower maxMessageSize
    bank.clock.advance(40)
    asked = {begun.key: begun for begun, _ in checks(producer)}
    assert asked.keys() == {"large", "small"}
    assert bank.end(asked["large"]).code == ResponseCode.SUCCESS
    assert bank.delivered() == ["large"]


def test_an_exception_nobody_foresaw_ends_one_round_of_checks(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = bank.producer()
    bank.begin("small")
    with monkeypatch.context() as patch:
        patch.setattr(CheckBacks, "read", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            bank.clock.advance(40)
    assert not list(checks(producer))
    bank.clock.advance(40)
    assert [begun.key for begun, _ in checks(producer)] == ["small"]
