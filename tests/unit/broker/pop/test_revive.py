"""When checkpoints are due, and what the messages given back look like."""

from __future__ import annotations

from ariane.broker.pop.checkpoints import Key
from ariane.broker.pop.revive import (
    BACK_OFF_S,
    FIRST_POP_KEY,
    GROUP_KEY,
    SLOT_MS,
    Schedule,
    back_off_ms,
    is_copy_of,
    retry_topic_for,
    revived,
)
from ariane.kernel.pop import Checkpoint
from ariane.protocol.message import StoredMessage, decode_properties

NOW_MS = 1_700_000_000_000


def lent(due_in_ms: int, first: int = 0, topic: str = "T") -> Checkpoint:
    return Checkpoint(Key(topic, "g", 0, first, NOW_MS), due_in_ms, (0, 1))


def take(schedule: Schedule, in_ms: int, count_max: int = 100) -> list[int]:
    return sorted(each.first for each in schedule.take(NOW_MS + in_ms, count_max))


def test_what_is_due_is_taken_never_early_and_at_most_a_slot_late() -> None:
    schedule = Schedule()
    for first, due_in_ms in enumerate((1_000, 1_050, 999, 5_000)):
        schedule.add(lent(due_in_ms, first), NOW_MS + due_in_ms)
    assert take(schedule, 998) == []
    assert take(schedule, 1_000) == [2]
    assert take(schedule, 1_049) == []
    assert take(schedule, 1_050 + SLOT_MS) == [0, 1]
    assert take(schedule, 4_999) == []
    assert take(schedule, 5_000 + SLOT_MS) == [3]
    assert take(schedule, 10**9) == []


def test_no_more_than_asked_for_and_the_rest_later() -> None:
    schedule = Schedule()
    for first in range(10):
        schedule.add(lent(first, first), NOW_MS + first)
    taken = [take(schedule, 1_000, 4) for _ in range(4)]
    assert [len(part) for part in taken] == [4, 4, 2, 0]
    assert sorted(first for part in taken for first in part) == list(range(10))


def test_settled_ones_are_left_out_and_swept() -> None:
    schedule = Schedule()
    checkpoints = [lent(1_000 + 10 * n, n) for n in range(100)]
    for each in checkpoints:
        schedule.add(each, each.due_ms)
    for each in checkpoints[:90]:
        each.close()
    schedule.sweep(30)
    assert 10 < len(schedule) < 100
    for _ in range(10):
        schedule.sweep(30)
    assert len(schedule) == 10
    assert take(schedule, 10_000) == list(range(90, 100))


def test_what_failed_is_tried_again_at_another_time() -> None:
    schedule = Schedule()
    schedule.add(lent(1_000), NOW_MS + 7_000)
    assert take(schedule, 6_999) == []
    assert take(schedule, 7_000 + SLOT_MS) == [0]
    assert [back_off_ms(n) for n in (1, 2, 17, 18, 99)] == [10_000, 20_000, 7_200_000] + [
        7_200_000
    ] * 2
    assert list(BACK_OFF_S) == sorted(BACK_OFF_S)


def test_where_messages_come_back() -> None:
    assert retry_topic_for(lent(1), is_v2=False) == "%RETRY%g_T"
    assert retry_topic_for(lent(1), is_v2=True) == "%RETRY%g+T"
    for topic in ("%RETRY%g_T", "%RETRY%g+T"):  # from a retry topic they stay there
        assert retry_topic_for(lent(1, topic=topic), is_v2=True) == topic


def stored(**fields: object) -> StoredMessage:
    values: dict[str, object] = {
        "topic": "T", "queue_id": 3, "queue_offset": 8, "log_offset": 1_000, "size": 200,
        "flag": 5, "system_flag": 8, "body_crc32": 0, "born_at_ms": 77,
        "born_host": ("10.0.0.9", 1),
        "stored_at_ms": 88, "store_host": ("10.0.0.1", 10911), "reconsume_times": 0,
        "prepared_offset": 0, "stored_body": b"body", "properties": {"UNIQ_KEY": "U", "TAGS": "a"},
    }  # fmt: skip
    return StoredMessage(**values | fields)  # type: ignore[arg-type]


def test_a_message_given_back_is_the_same_with_one_more_delivery_counted() -> None:
    message = stored()
    again = revived(message, b"UNIQ_KEY\x01U\x02TAGS\x01a\x02", lent(60_000), "%RETRY%g_T", 0)
    assert (again.topic, again.queue_id, again.body) == ("%RETRY%g_T", 0, b"body")
    assert (again.reconsume_times, again.flag, again.system_flag) == (1, 5, 8)
    assert (again.born_at_ms, again.born_host) == (77, ("10.0.0.9", 1))
    assert decode_properties(again.properties.decode()) == {
        "UNIQ_KEY": "U",
        "TAGS": "a",
        FIRST_POP_KEY: str(NOW_MS),
        GROUP_KEY: "g",
    }


def test_the_time_of_the_first_pop_is_kept() -> None:
    text = b"UNIQ_KEY\x01U\x021ST_POP_TIME\x011\x02ORIGIN_GROUP\x01g\x02"
    message = stored(reconsume_times=4, properties=decode_properties(text.decode()))
    again = revived(message, text, lent(60_000), "%RETRY%g_T", 0)
    assert (again.properties, again.reconsume_times) == (text, 5)


def test_properties_without_room_for_the_time_are_kept_as_they_are() -> None:
    text = b"UNIQ_KEY\x01U\x02K\x01" + b"v" * 32_745 + b"\x02"
    message = stored(properties=decode_properties(text.decode()))
    assert revived(message, text, lent(60_000), "%RETRY%g_T", 0).properties == text


def test_a_copy_is_known_by_what_it_was_made_of() -> None:
    message = stored()
    copy = stored(topic="%RETRY%g_T", queue_id=0, queue_offset=0, reconsume_times=1)
    assert is_copy_of(copy, message)
    others = [
        {"reconsume_times": 2},
        {"born_at_ms": 78},
        {"stored_body": b"other"},
        {"properties": {"UNIQ_KEY": "V"}},
    ]
    for fields in others:
        assert not is_copy_of(stored(**{"reconsume_times": 1} | fields), message)
