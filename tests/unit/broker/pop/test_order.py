"""Ordered pops: who waits for whom, what is counted, and what an acknowledgement leads to."""

from __future__ import annotations

import json

import pytest

from ariane.broker.pop import order_file
from ariane.broker.pop.order import LISTED_MAX, OrderInfo, Orders, Place, Settled, Verdict
from ariane.disk import SimulatedDisk
from ariane.protocol import fastjson
from ariane.store import config_files

NOW_MS = 1_700_000_000_000
HERE = Place("T", "g", 0)
SETTLED, STALE, UNKNOWN = Verdict.SETTLED, Verdict.STALE, Verdict.UNKNOWN


def lend(
    orders: Orders,
    *offsets: int,
    at_ms: int = 0,
    attempt: str | None = None,
    invisible_ms: int = 10_000,
) -> OrderInfo:
    return orders.lend(
        HERE, offsets, attempt_id=attempt, popped_ms=NOW_MS + at_ms, invisible_ms=invisible_ms
    )


def blocked_ms(orders: Orders, in_ms: int, attempt: str | None = None) -> int:
    until_ms = orders.blocked_until_ms(HERE, NOW_MS + in_ms, attempt)
    return until_ms - NOW_MS if until_ms else 0


def test_a_queue_is_blocked_until_all_is_acknowledged() -> None:
    orders = Orders()
    assert blocked_ms(orders, 0) == 0
    lend(orders, 5, 6, 9)
    assert blocked_ms(orders, 0) == 10_000
    assert orders.settle(HERE, 6, NOW_MS) == Settled(SETTLED, 5)
    assert orders.settle(HERE, 5, NOW_MS) == Settled(SETTLED, 9)
    assert blocked_ms(orders, 9_999) == 10_000
    assert orders.settle(HERE, 9, NOW_MS) == Settled(SETTLED, 10)
    assert blocked_ms(orders, 0) == 0


def test_only_its_own_queue_and_group_are_blocked() -> None:
    orders = Orders()
    lend(orders, 5)
    for place in (Place("T", "g", 1), Place("T", "other", 0), Place("U", "g", 0)):
        assert orders.blocked_until_ms(place, NOW_MS) == 0


def test_a_queue_is_free_again_when_its_time_is_up() -> None:
    orders = Orders()
    lend(orders, 5, 6)
    assert blocked_ms(orders, 9_999) == 10_000
    assert blocked_ms(orders, 10_000) == 0


def test_the_same_attempt_is_let_through_and_counts_as_one_delivery() -> None:
    orders = Orders()
    lend(orders, 5, 6, attempt="a")
    assert (blocked_ms(orders, 1, "a"), blocked_ms(orders, 1, "b")) == (0, 10_000)
    assert blocked_ms(orders, 1, None) == 10_000
    assert lend(orders, 5, 6, at_ms=1, attempt="a").counts == {}
    assert lend(orders, 5, 6, at_ms=2, attempt="b").counts == {5: 1, 6: 1}
    assert lend(orders, 5, 6, 7, at_ms=3, attempt="c").counts == {5: 2, 6: 2}


def test_an_empty_attempt_is_none() -> None:
    orders = Orders()
    lend(orders, 5, attempt="")
    assert blocked_ms(orders, 1, "") == 10_000


VERDICTS = [
    ("of this delivery", 5, 0, Settled(SETTLED, 6)),
    ("twice is as once", 5, 0, Settled(SETTLED, 6)),
    ("of an earlier delivery", 6, -1, Settled(STALE)),
    ("not among those out", 7, 0, Settled(UNKNOWN)),
    ("before all of them", 4, 0, Settled(UNKNOWN)),
]


def test_what_becomes_of_acknowledgements() -> None:
    orders = Orders()
    lend(orders, 5, 6)
    for what, offset, at_ms, verdict in VERDICTS:
        assert orders.settle(HERE, offset, NOW_MS + at_ms) == verdict, what


def test_an_acknowledgement_where_nothing_is_known_moves_on() -> None:
    assert Orders().settle(HERE, 5, NOW_MS) == Settled(SETTLED, 6)


def test_acknowledged_messages_behind_one_that_is_not_are_not_lent_again() -> None:
    orders = Orders()
    lend(orders, 4, 5, 6, 7)
    orders.settle(HERE, 5, NOW_MS)
    orders.settle(HERE, 7, NOW_MS)
    assert orders.settled_from(HERE, 4) == [5, 7]
    lend(orders, 4, at_ms=10_000)  # only one was asked for this time
    assert orders.settled_from(HERE, 4) == [5, 7]
    assert orders.room(HERE, 4) == LISTED_MAX - 2
    # 6 lies between, not acknowledged and not out: it comes next, and then what is behind 7
    assert orders.settle(HERE, 4, NOW_MS + 10_000) == Settled(SETTLED, 6)
    assert blocked_ms(orders, 10_001) == 0
    assert lend(orders, 6, 8, at_ms=10_001).counts == {6: 1}
    assert orders.settle(HERE, 6, NOW_MS + 10_001) == Settled(SETTLED, 8)
    assert orders.settle(HERE, 8, NOW_MS + 10_001) == Settled(SETTLED, 9)


def test_what_stays_listed_takes_room_but_one_can_always_be_lent() -> None:
    orders = Orders()
    lent_count, at_ms, first = 0, 0, 100
    nexts = first + 1
    while orders.room(HERE, first) > 1:
        count = min(32, orders.room(HERE, first))
        offsets = [first, *range(nexts, nexts + count - 1)]
        nexts += count - 1
        lend(orders, *offsets, at_ms=at_ms)
        for offset in offsets[1:]:
            orders.settle(HERE, offset, NOW_MS + at_ms)
        lent_count += count
        at_ms += 10_000
    assert orders.room(HERE, first) == 1
    info = lend(orders, first, at_ms=at_ms)
    assert len(info.offsets()) == LISTED_MAX
    assert orders.settle(HERE, first, NOW_MS + at_ms) == Settled(SETTLED, nexts)


def test_a_message_can_be_kept_longer_or_given_back_sooner() -> None:
    orders = Orders()
    lend(orders, 5, 6)
    assert orders.hide(HERE, 5, popped_ms=NOW_MS, visible_ms=NOW_MS + 30_000)
    assert blocked_ms(orders, 0) == 30_000
    assert orders.hide(HERE, 5, popped_ms=NOW_MS, visible_ms=NOW_MS + 1)
    assert blocked_ms(orders, 0) == 10_000
    assert orders.hide(HERE, 6, popped_ms=NOW_MS, visible_ms=NOW_MS + 2)
    assert blocked_ms(orders, 0) == 2
    assert not orders.hide(HERE, 6, popped_ms=NOW_MS - 1, visible_ms=NOW_MS + 99_000)
    assert blocked_ms(orders, 0) == 2


def test_pop_times_grow_whatever_the_clock_does() -> None:
    orders = Orders()
    assert orders.popped_ms(HERE, NOW_MS) == NOW_MS
    lend(orders, 5)
    assert orders.popped_ms(HERE, NOW_MS - 60_000) == NOW_MS + 1
    assert orders.popped_ms(HERE, NOW_MS + 60_000) == NOW_MS + 60_000


def test_a_journal_restores_what_is_newer_than_the_file() -> None:
    orders = Orders()
    lend(orders, 5, at_ms=100)
    for popped_ms, settled, kept in ((99, 1, 0), (100, 1, 1), (200, 0, 0)):
        info = OrderInfo(popped_ms=NOW_MS + popped_ms, places=[5], settled=settled)
        orders.restore(HERE, info)
        now = orders.get(HERE)
        assert now is not None
        assert now.settled == kept


def test_queues_idle_for_a_day_are_forgotten_unless_they_keep_messages_back() -> None:
    orders = Orders()
    lend(orders, 5)
    keeping = Place("T", "g", 1)
    orders.lend(keeping, [5, 6], attempt_id=None, popped_ms=NOW_MS, invisible_ms=1)
    orders.settle(keeping, 6, NOW_MS)
    assert not orders.forget_idle(NOW_MS + 86_400_000)
    assert orders.forget_idle(NOW_MS + 86_400_001)
    assert orders.get(HERE) is None
    assert orders.get(keeping) is not None


# The file.


def test_the_file_is_as_apache_writes_it() -> None:
    orders = Orders()
    lend(orders, 5, 6, attempt="a")
    lend(orders, 5, 6, 9, at_ms=1, attempt="b")
    orders.settle(HERE, 6, NOW_MS + 1)
    orders.hide(HERE, 5, popped_ms=NOW_MS + 1, visible_ms=NOW_MS + 2)
    text = order_file.encode(orders)
    assert b"0:{" in text  # numbers are bare keys
    (info,) = fastjson.loads(text)["table"]["T@g"].values()  # type: ignore[index,call-overload]
    assert info == {
        "a": "b", "cm": 2, "i": 10_000, "l": NOW_MS + 1, "o": [5, 1, 4],
        "oc": {"5": 1, "6": 1}, "ot": {"5": NOW_MS + 2}, "popTime": NOW_MS + 1,
    }  # fmt: skip


def test_what_apache_wrote_is_read() -> None:
    disk = SimulatedDisk()
    text = (
        b'{"table":{"T@g":{0:{"cm":-9223372036854775807,"i":60000,"l":1700000000001,'
        b'"o":[100,1,2],"popTime":1700000000000},3:{"a":"x","cm":0,"i":60000,"l":1,"o":[7],'
        b'"oc":{7:2},"popTime":5}},"U@h":{}}}'
    )
    config_files.persist(disk, order_file.PATH, text)
    orders = Orders()
    order_file.load(disk, orders)
    info = orders.get(HERE)
    assert info is not None
    assert (info.offsets(), info.settled) == ([100, 101, 102], 1 << 63 | 1)
    other = orders.get(Place("T", "g", 3))
    assert other is not None
    assert (other.counts, other.attempt_id) == ({7: 2}, "x")


@pytest.mark.parametrize("settled", [0, 1, 1 << 62, 1 << 63, (1 << 64) - 1])
def test_all_bits_survive_javas_signed_numbers(settled: int) -> None:
    orders = Orders()
    orders.put(HERE, OrderInfo(settled=settled, places=[1], popped_ms=1))
    text = order_file.encode(orders)
    bits = json.loads(text.replace(b"0:{", b'"0":{'))["table"]["T@g"]["0"]["cm"]
    assert -(1 << 63) <= bits < 1 << 63
    disk, again = SimulatedDisk(), Orders()
    config_files.persist(disk, order_file.PATH, text)
    order_file.load(disk, again)
    info = again.get(HERE)
    assert info is not None
    assert info.settled == settled
