"""How the members of a consumer group split a topic's queues: RocketMQ's six rules, to the letter.

Every member works the split out by itself, so all of them, in whatever language, must come to the
same one: the same rule, applied to the same queues and members in the same order. Nothing here
knows a clock or a socket.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol, TypeVar

from ariane.errors import InvalidArgument
from ariane.protocol.bodies import MessageQueue

VIRTUAL_NODES: Final = 10  # of each member on the ring of the consistent hash

Queues = list[MessageQueue]
_Item = TypeVar("_Item", MessageQueue, str)


class Strategy(Protocol):
    """A rule for splitting queues; tells one member its share."""

    @property
    def name(self) -> str:
        """What Java calls it."""
        ...

    def share(self, member: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> Queues:
        """What `member`, one of `members`, reads of `queues`; both in the order of `in_order`."""
        ...


def in_order(queues: Iterable[MessageQueue]) -> Queues:
    """Queues as Java sorts them: by topic, broker and number."""
    return sorted(
        queues,
        key=lambda queue: (_utf16(queue.topic), _utf16(queue.broker_name), queue.queue_id),
    )


def members_in_order(members: Iterable[str]) -> list[str]:
    """Members as Java sorts them, each once."""
    return sorted(set(members), key=_utf16)


def allocate(
    strategy: Strategy, member: str, queues: Iterable[MessageQueue], members: Iterable[str]
) -> Queues:
    """The share of one member; nothing while the group does not know it yet."""
    present = members_in_order(members)
    wanted = in_order(queues)
    if member not in present or not wanted:
        return []
    return strategy.share(member, wanted, present)


@dataclass(frozen=True, slots=True)
class Average:
    """Neighbouring queues, as equal in number as can be; the first members have one more."""

    name: str = "AVG"

    def share(self, member: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> Queues:
        """What the member reads."""
        position = members.index(member)
        size, more = divmod(len(queues), len(members))
        first = position * size + min(position, more)
        return list(queues[first : first + size + (position < more)])


@dataclass(frozen=True, slots=True)
class Circle:
    """Queues dealt out like cards."""

    name: str = "AVG_BY_CIRCLE"

    def share(self, member: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> Queues:
        """What the member reads."""
        return list(queues[members.index(member) :: len(members)])


@dataclass(frozen=True, slots=True)
class ConsistentHash:
    """A ring of hashes, so that few queues move when a member comes or goes."""

    virtual_nodes: int = VIRTUAL_NODES
    name: str = "CONSISTENT_HASH"

    def share(self, member: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> Queues:
        """What the member reads."""
        points, owners = _ring(tuple(members), self.virtual_nodes)
        return [
            queue
            for queue in queues
            # Past the last point the ring begins anew.
            if owners[bisect_left(points, _md5(_java_text(queue))) % len(points)] == member
        ]


@dataclass(frozen=True, slots=True)
class MachineRoom:
    """Only queues of brokers named `room@broker` in these rooms, dealt out in equal blocks."""

    rooms: Collection[str]
    name: str = "MACHINE_ROOM"

    def share(self, member: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> Queues:
        """What the member reads."""
        near = [queue for queue in queues if self._is_near(queue.broker_name)]
        position = members.index(member)
        size, more = divmod(len(near), len(members))
        share = near[position * size : (position + 1) * size]
        if position < more:
            share.append(near[position + size * len(members)])
        return share

    def _is_near(self, broker: str) -> bool:
        parts = broker.split("@")
        while parts and not parts[-1]:
            parts.pop()  # as Java splits
        return len(parts) == 2 and parts[0] in self.rooms


@dataclass(frozen=True, slots=True)
class MachineRoomNearby:
    """Queues of a room for the members in it; those of rooms without a member for everybody."""

    strategy: Strategy
    room_of_queue: Callable[[MessageQueue], str]
    room_of_member: Callable[[str], str]

    @property
    def name(self) -> str:
        """What Java calls it."""
        return f"MACHINE_ROOM_NEARBY-{self.strategy.name}"

    def share(self, member: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> Queues:
        """What the member reads."""
        queues_of = _by_room(queues, self.room_of_queue)
        members_of = _by_room(members, self.room_of_member)
        here = self.room_of_member(member)
        share = []
        if here in queues_of:
            share += self.strategy.share(member, queues_of.pop(here), members_of[here])
        for room in sorted(queues_of, key=_utf16):
            if room not in members_of:
                share += self.strategy.share(member, queues_of[room], members)
        return share


@dataclass(frozen=True, slots=True)
class Config:
    """The queues told beforehand, whoever else is there."""

    queues: Sequence[MessageQueue]
    name: str = "CONFIG"

    def share(self, member: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> Queues:
        """What the member reads, of this topic."""
        topics = {queue.topic for queue in queues}
        return [queue for queue in self.queues if queue.topic in topics]


def _by_room(items: Iterable[_Item], room_of: Callable[[_Item], str]) -> dict[str, list[_Item]]:
    rooms: dict[str, list[_Item]] = {}
    for item in items:
        room = room_of(item)
        if not room:
            raise InvalidArgument(f"no machine room is known for {item}; name one for each")
        rooms.setdefault(room, []).append(item)
    return rooms


@lru_cache(maxsize=64)
def _ring(members: tuple[str, ...], virtual_nodes: int) -> tuple[list[int], list[str]]:
    """The points of the ring in order and whose they are; of equal points the last one stays."""
    ring: Mapping[int, str] = {
        _md5(f"{member}-{node}"): member for member in members for node in range(virtual_nodes)
    }
    points = sorted(ring)
    return points, [ring[point] for point in points]


def _md5(text: str) -> int:
    """The first four bytes of the MD5 digest."""
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


def _java_text(queue: MessageQueue) -> str:
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name},"
        f" queueId={queue.queue_id}]"
    )


def _utf16(text: str) -> bytes:
    """A key that sorts as Java does: by UTF-16 units, which is not the order of code points."""
    return text.encode("utf-16-be", "surrogatepass")
