"""What may be committed, what stops pulling, and what has taken too long."""

from __future__ import annotations

import pytest

from ariane.client.process_queue import Limits, ProcessQueue
from ariane.client.received import ReceivedMessage
from ariane.client.records import decode
from ariane.protocol.message_queue import MessageQueue
from tests.unit.client.fake import record

QUEUE = MessageQueue(topic="orders", broker_name="a", queue_id=0)


def messages(*offsets: int, size: int = 10) -> list[ReceivedMessage]:
    data = b"".join(record(b"x" * size, queue_offset=offset) for offset in offsets)
    return decode(data, ReceivedMessage)


def held(*offsets: int, first: int = 0) -> tuple[ProcessQueue, list[ReceivedMessage]]:
    queue = ProcessQueue(QUEUE, first, now_s=0)
    new = queue.put(messages(*offsets), offsets[-1] + 1 if offsets else first, now_s=0)
    return queue, new


def test_the_commit_offset_waits_for_the_oldest_message() -> None:
    queue, (five, six, seven) = held(5, 6, 7, first=5)
    assert queue.commit_offset == 5
    queue.finish(six)
    assert queue.commit_offset == 5
    queue.finish(five)
    assert queue.commit_offset == 7
    queue.finish(seven)
    assert queue.commit_offset == 8
    assert (queue.message_count, queue.byte_count, queue.head) == (0, 0, None)


def test_what_a_filter_left_out_is_passed_when_nothing_waits() -> None:
    queue, (five,) = held(5, first=5)
    queue.put([], 40, now_s=0)
    assert queue.commit_offset == 5
    queue.finish(five)
    assert queue.commit_offset == 40


def test_a_queue_without_messages_stays_where_it_began() -> None:
    assert ProcessQueue(QUEUE, 17, now_s=0).commit_offset == 17


def test_what_was_held_before_is_not_taken_twice() -> None:
    queue, _ = held(5, 6, first=5)
    again = queue.put(messages(5, 6, 7), 8, now_s=0)
    assert [message.queue_offset for message in again] == [7]
    assert queue.message_count == 3


def test_finishing_twice_counts_once() -> None:
    queue, (five, _) = held(5, 6, first=5)
    assert queue.finish(five)
    assert not queue.finish(five)
    assert queue.message_count == 1


def test_nothing_counts_after_a_drop() -> None:
    queue, (five, _six) = held(5, 6, first=5)
    assert queue.drop() == 5
    assert not queue.finish(five)
    assert queue.put(messages(7), 8, now_s=0) == []
    assert (queue.commit_offset, queue.message_count) == (5, 0)


FULL = {
    "messages": (Limits(messages_max=2), "3 messages"),
    "bytes": (Limits(bytes_max=200), "bytes"),
    "span": (Limits(span_max=8), "9 offsets back"),
}


@pytest.mark.parametrize(("limits", "words"), FULL.values(), ids=FULL)
def test_pulling_stops_beyond_each_limit(limits: Limits, words: str) -> None:
    queue, (one, *_) = held(1, 2, 10, first=1)
    fullness = queue.fullness(limits)
    assert fullness is not None and words in fullness
    assert queue.fullness(Limits()) is None
    queue.finish(one)
    if limits.bytes_max > 200:
        assert queue.fullness(limits) is None


def test_limits_are_what_may_wait_and_one_more_stops() -> None:
    queue, (_, two) = held(1, 2, first=1)
    assert queue.fullness(Limits(messages_max=2)) is None
    assert queue.fullness(Limits(span_max=1)) is None
    assert queue.fullness(Limits(bytes_max=queue.byte_count)) is None
    assert queue.fullness(Limits(bytes_max=queue.byte_count - 1)) is not None
    queue.finish(two)
    assert queue.fullness(Limits(messages_max=1)) is None


def test_a_consumer_that_keeps_order_may_span() -> None:
    queue, _ = held(1, 5000, first=1)
    assert queue.fullness(Limits()) is not None
    assert queue.fullness(Limits(), may_span=True) is None


def test_messages_are_stuck_when_seen_here_for_too_long_waiting_or_at_work() -> None:
    queue, (one, two, three) = held(1, 2, 3, first=1)
    one.is_started = two.is_started = True
    assert queue.stuck(now_s=0, timeout_s=900) == []
    queue.finish(one)
    three.is_started = True  # the time that it waited counts
    assert queue.stuck(now_s=899, timeout_s=900) == []
    assert queue.stuck(now_s=900, timeout_s=900) == [two, three]
    queue.finish(two)
    assert queue.stuck(now_s=1798, timeout_s=900) == [three]


def test_more_time_can_be_had() -> None:
    queue, (one,) = held(1, first=1)
    one.is_started = True
    queue.stuck(now_s=0, timeout_s=900)
    queue.extend(one, now_s=800)
    assert queue.stuck(now_s=1600, timeout_s=900) == []
    assert queue.stuck(now_s=1700, timeout_s=900) == [one]


def test_a_message_that_nobody_started_is_given_to_others_too() -> None:
    queue, (one,) = held(1, first=1)
    assert queue.stuck(now_s=10, timeout_s=900) == []
    assert queue.stuck(now_s=910, timeout_s=900) == [one]


def test_a_message_that_a_loop_has_not_asked_for_is_not_stuck() -> None:
    queue, (one,) = held(1, first=1)
    queue.stuck(now_s=0, timeout_s=900, waiting=False)
    assert queue.stuck(now_s=10_000, timeout_s=900, waiting=False) == []
    one.is_started = True
    queue.stuck(now_s=10_000, timeout_s=900, waiting=False)
    assert queue.stuck(now_s=10_900, timeout_s=900, waiting=False) == [one]


def test_a_lock_counts_for_thirty_seconds() -> None:
    queue, _ = held(1, first=1)
    assert not queue.has_lock(now_s=0)
    queue.lock(now_s=10)
    assert queue.has_lock(now_s=40)
    assert not queue.has_lock(now_s=40.1)
    queue.lock(now_s=41)
    queue.unlock()
    assert not queue.has_lock(now_s=41)
