"""Ordered pops: one batch of a queue is out at a time, and the next waits for it. Pure.

For each queue a group pops in order there is one `OrderInfo`: the messages lent last, which of them
are acknowledged, until when the rest is invisible, and how often each was lent. While any is
neither acknowledged nor visible again the queue is blocked, for that group only. A group's consume
offset is the first message not acknowledged; acknowledged ones behind it stay listed, so that they
are not lent again with the ones before them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple

import msgspec
from msgspec import field

LISTED_MAX: Final = 64  # the bits of Java's long
IDLE_MS_MAX: Final = 24 * 3600 * 1000


class OrderInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the messages of one queue lent last, spelled as Apache saves it."""

    attempt_id: str | None = field(name="a", default=None)
    settled: int = field(name="cm", default=0)  # bit N: `offsets()[N]` is acknowledged
    invisible_ms: int = field(name="i", default=0)
    lent_ms: int = field(name="l", default=0)
    places: list[int] = field(name="o", default_factory=list)  # the first, then distances from it
    counts: dict[int, int] = field(name="oc", default_factory=dict)  # earlier deliveries, by offset
    visible_ms: dict[int, int] = field(name="ot", default_factory=dict)  # changed ones, by offset
    popped_ms: int = field(name="popTime", default=0)

    def offsets(self) -> list[int]:
        """The queue offsets listed, in order."""
        if not self.places:
            return []
        first = self.places[0]
        return [first, *(first + distance for distance in self.places[1:])]

    def is_settled(self, index: int) -> bool:
        """Whether the message listed there is acknowledged."""
        return bool(self.settled >> index & 1)

    def next_offset(self) -> int:
        """The first message not acknowledged, or the one after the last."""
        offsets = self.offsets()
        for index, queue_offset in enumerate(offsets):
            if not self.is_settled(index):
                return queue_offset
        return offsets[-1] + 1 if offsets else 0

    def blocked_until_ms(self) -> int:
        """When all that is not acknowledged is visible again; 0 when everything is acknowledged."""
        return max(
            (
                self.visible_ms.get(queue_offset, self.popped_ms + self.invisible_ms)
                for index, queue_offset in enumerate(self.offsets())
                if not self.is_settled(index)
            ),
            default=0,
        )

    def settled_from(self, queue_offset: int) -> list[int]:
        """What is acknowledged at or after a queue offset."""
        offsets = enumerate(self.offsets())
        return [
            offset for index, offset in offsets if offset >= queue_offset and self.is_settled(index)
        ]


class Verdict(Enum):
    """What became of an acknowledgement."""

    SETTLED = "SETTLED"
    STALE = "STALE"  # of an earlier delivery: the message was lent again since
    UNKNOWN = "UNKNOWN"  # no such message is out


class Settled(NamedTuple):
    """An acknowledgement's outcome, and the consume offset it leads to."""

    verdict: Verdict
    consume_offset: int = -1


class Place(NamedTuple):
    """A queue as one group reads it."""

    topic: str
    group: str
    queue_id: int


class Orders:
    """What is out of each queue popped in order."""

    def __init__(self) -> None:
        self._infos: dict[Place, OrderInfo] = {}

    def __iter__(self) -> Iterator[tuple[Place, OrderInfo]]:
        return iter(list(self._infos.items()))

    def get(self, place: Place) -> OrderInfo | None:
        """What is known of a queue."""
        return self._infos.get(place)

    def put(self, place: Place, info: OrderInfo | None) -> None:
        """Take what is known of a queue from elsewhere; None forgets it."""
        if info is None:
            self._infos.pop(place, None)
        else:
            self._infos[place] = info

    def restore(self, place: Place, info: OrderInfo) -> None:
        """Take what a journal says, unless something newer is known."""
        known = self._infos.get(place)
        if known is None or known.popped_ms <= info.popped_ms:
            self._infos[place] = info

    def blocked_until_ms(self, place: Place, now_ms: int, attempt_id: str | None = None) -> int:
        """Until when nobody may pop the queue; 0 when it is free, or free for this attempt."""
        info = self._infos.get(place)
        if info is None or _is_same(info.attempt_id, attempt_id):
            return 0
        until_ms = info.blocked_until_ms()
        return until_ms if until_ms > now_ms else 0

    def settled_from(self, place: Place, consume_offset: int) -> list[int]:
        """The messages from the consume offset on that are not to be lent again."""
        info = self._infos.get(place)
        return [] if info is None else info.settled_from(consume_offset)

    def room(self, place: Place, consume_offset: int) -> int:
        """How many messages may be lent at once: what stays listed takes room."""
        return LISTED_MAX - len(self.settled_from(place, consume_offset))

    def popped_ms(self, place: Place, now_ms: int) -> int:
        """The time to give a pop: later than the one before, whatever the wall clock does."""
        info = self._infos.get(place)
        return now_ms if info is None else max(now_ms, info.popped_ms + 1)

    def lend(
        self,
        place: Place,
        lent: Sequence[int],
        *,
        attempt_id: str | None,
        popped_ms: int,
        invisible_ms: int,
    ) -> OrderInfo:
        """Messages are given out, from the first one not acknowledged on.

        What is acknowledged behind it stays listed, and so does what lies before that and is not
        lent this time: it is visible to the next pop, and nothing may go past it.
        """
        before = self._infos.get(place) or OrderInfo()
        settled = set(before.settled_from(lent[0]))
        last = max(settled, default=-1)
        waiting = {offset for offset in before.offsets() if lent[-1] < offset < last} - settled
        offsets = sorted({*lent, *settled, *waiting})
        bits = sum(1 << index for index, offset in enumerate(offsets) if offset in settled)
        counts = _counts_after(before, lent, is_repeated=_is_same(before.attempt_id, attempt_id))
        kept = {offset: before.counts[offset] for offset in waiting & before.counts.keys()}
        info = OrderInfo(
            attempt_id=attempt_id,
            settled=bits,
            invisible_ms=invisible_ms,
            lent_ms=popped_ms,
            places=[offsets[0], *(offset - offsets[0] for offset in offsets[1:])],
            counts=counts | kept,
            visible_ms=dict.fromkeys(sorted(waiting), 0),
            popped_ms=popped_ms,
        )
        self._infos[place] = info
        return info

    def settle(self, place: Place, queue_offset: int, popped_ms: int) -> Settled:
        """A message of the delivery at `popped_ms` is acknowledged."""
        info = self._infos.get(place)
        if info is None:
            return Settled(Verdict.SETTLED, queue_offset + 1)
        if info.popped_ms != popped_ms:
            return Settled(Verdict.STALE)
        offsets = info.offsets()
        if queue_offset not in offsets:
            return Settled(Verdict.UNKNOWN)
        bits = info.settled | 1 << offsets.index(queue_offset)
        info = msgspec.structs.replace(info, settled=bits)
        self._infos[place] = info
        return Settled(Verdict.SETTLED, info.next_offset())

    def hide(self, place: Place, queue_offset: int, *, popped_ms: int, visible_ms: int) -> bool:
        """Change until when a message is invisible; False when it is not out by that delivery."""
        info = self._infos.get(place)
        if info is None or info.popped_ms != popped_ms or queue_offset not in info.offsets():
            return False
        changed = info.visible_ms | {queue_offset: visible_ms}
        self._infos[place] = msgspec.structs.replace(info, visible_ms=changed)
        return True

    def forget_idle(self, now_ms: int) -> bool:
        """Forget the queues nobody has popped for a day; True when there were any.

        Those that keep acknowledged messages from being lent again stay.
        """
        idle = [
            place
            for place, info in self._infos.items()
            if info.lent_ms + IDLE_MS_MAX < now_ms and not info.settled_from(info.next_offset())
        ]
        for place in idle:
            del self._infos[place]
        return bool(idle)


def _is_same(attempt_id: str | None, other: str | None) -> bool:
    return bool(attempt_id) and attempt_id == other


def _counts_after(before: OrderInfo, lent: Sequence[int], *, is_repeated: bool) -> dict[int, int]:
    """Earlier deliveries of each message; the answer to a lost answer is not another one."""
    if is_repeated:
        return before.counts
    known = set(before.offsets())
    return {offset: before.counts.get(offset, 0) + 1 for offset in lent if offset in known}
