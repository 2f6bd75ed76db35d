"""What became of a message, by what a broker says of a group."""

from __future__ import annotations

import pytest

from ariane.client.tracking import Track, TrackType, track_of
from ariane.protocol.bodies import (
    ConsumerConnections,
    ConsumeStats,
    MessageQueue,
    OffsetProgress,
    SubscriptionData,
)
from ariane.protocol.message import decode_records
from tests.unit.client.fake import record

(MESSAGE,) = decode_records(record(b"x", queue_offset=5, tags="A"))


def members(
    kind: str = "CONSUME_PASSIVELY", model: str = "CLUSTERING", **wants: object
) -> ConsumerConnections:
    wanted = SubscriptionData(topic="orders", **wants)  # type: ignore[arg-type]
    return ConsumerConnections(
        consume_type=kind, message_model=model, subscriptions={"orders": wanted}
    )


def at(consume_offset: int, pull_offset: int = 0, lent: list[int] | None = None) -> ConsumeStats:
    progress = OffsetProgress(
        consume_offset=consume_offset,
        pull_offset=max(consume_offset, pull_offset),
        lent_offsets=lent,
    )
    other = MessageQueue(broker_name="a", queue_id=1, topic="orders")
    queue = MessageQueue(broker_name="a", queue_id=0, topic="orders")
    return ConsumeStats(offsets={other: OffsetProgress(consume_offset=99), queue: progress})


NOWHERE = ConsumeStats()
SQL = {"expression_type": "SQL92", "expression": "a > 5"}
T = TrackType
CASES: dict[
    str, tuple[ConsumerConnections | None, ConsumeStats, bool | None, TrackType, bool | None]
] = {
    "offline, and past it": (None, at(6), None, T.NOT_ONLINE, True),
    "offline, and before it": (None, at(5), None, T.NOT_ONLINE, False),
    "offline, and never here": (None, NOWHERE, None, T.NOT_ONLINE, False),
    "consumed": (members(), at(6), None, T.CONSUMED, True),
    "the next one": (members(), at(5), None, T.NOT_CONSUME_YET, False),
    "pulled, not consumed": (members(), at(5, 9), None, T.NOT_CONSUME_YET, False),
    "no progress at all": (members(), NOWHERE, None, T.NOT_CONSUME_YET, False),
    "its tag is wanted": (members(tags=["B", "A"]), at(6), None, T.CONSUMED, True),
    "its tag is not wanted": (members(tags=["B"]), at(6), None, T.CONSUMED_BUT_FILTERED, True),
    "tag not wanted, not there yet": (members(tags=["B"]), at(5), None, T.NOT_CONSUME_YET, False),
    "any tag": (members(tags=["*"]), at(6), None, T.CONSUMED, True),
    "an expression lets it through": (members(**SQL), at(6), True, T.CONSUMED, True),
    "an expression does not": (members(**SQL), at(6), False, T.CONSUMED_BUT_FILTERED, True),
    "an expression nobody asked": (members(**SQL), at(6), None, T.CONSUMED, True),
    "read as one likes": (members("CONSUME_ACTIVELY"), at(6), None, T.PULL, True),
    "broadcast": (members(model="BROADCASTING"), NOWHERE, None, T.CONSUME_BROADCASTING, None),
    "popped and acknowledged": (members("CONSUME_POP"), at(6, 6, []), None, T.CONSUMED, True),
    "popped and held": (members("CONSUME_POP"), at(5, 6, [5]), None, T.NOT_CONSUME_YET, False),
    "acknowledged before others": (
        members("CONSUME_POP"),
        at(3, 6, [3, 4]),
        None,
        T.CONSUMED,
        True,
    ),
    "not popped yet": (members("CONSUME_POP"), at(3, 5, [3]), None, T.NOT_CONSUME_YET, False),
    "popped, from Apache's broker": (members("CONSUME_POP"), at(6), None, T.UNKNOWN, None),
    "not popped, from Apache's": (members("CONSUME_POP"), at(5), None, T.NOT_CONSUME_YET, False),
    "switched to pop by the broker": (members(), at(4, 6, [4]), None, T.CONSUMED, True),
}


@pytest.mark.parametrize(
    ("online", "stats", "is_wanted", "kind", "is_passed"), CASES.values(), ids=CASES
)
def test_what_became_of_it(
    online: ConsumerConnections | None,
    stats: ConsumeStats,
    is_wanted: bool | None,
    kind: TrackType,
    is_passed: bool | None,
) -> None:
    found = track_of("g", MESSAGE, online, stats, is_wanted=is_wanted)
    assert (found.group, found.type, found.is_passed) == ("g", kind, is_passed)
    assert bool(found.detail) == (kind is T.UNKNOWN)


def test_a_group_that_does_not_read_the_topic_any_more() -> None:
    elsewhere = ConsumerConnections(consume_type="CONSUME_PASSIVELY", message_model="CLUSTERING")
    assert track_of("g", MESSAGE, elsewhere, at(6)) == Track("g", T.CONSUMED, is_passed=True)
