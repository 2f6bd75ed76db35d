"""Which queues a member of a group reads when the broker decides: RocketMQ's two rules. Pure.

With pull, every queue has one reader. With pop a queue may have many: each member reads all queues
of all brokers, or its own share and those of some members behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ariane.protocol.bodies import MessageQueue

Queues = list[MessageQueue]
Rule = Callable[[str, Sequence[MessageQueue], Sequence[str]], Queues]


def averagely(member: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> Queues:
    """Equal stretches; the first members get one more when it does not come out even."""
    index, count = members.index(member), len(members)
    least, more = divmod(len(queues), count)
    first = index * least + min(index, more)
    return list(queues[first : first + least + (index < more)])


def by_circle(member: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> Queues:
    """One queue each in turn, round and round."""
    return list(queues[members.index(member) :: len(members)])


RULES: Final[dict[str, Rule]] = {"AVG": averagely, "AVG_BY_CIRCLE": by_circle}


def share_to_pull(
    rule: Rule, member: str, queues: Sequence[MessageQueue], members: Sequence[str]
) -> Queues:
    """What a member pulls; nothing while the group does not know it."""
    return rule(member, queues, members) if member in members else []


def share_to_pop(
    rule: Rule,
    member: str,
    queues: Sequence[MessageQueue],
    members: Sequence[str],
    share_count: int,
) -> Queues:
    """What a member pops: with `share_count` other shares beside its own, 0 or less for all."""
    if share_count <= 0 or share_count >= len(members) - 1:
        brokers = sorted({(queue.broker_name, queue.topic) for queue in queues})
        return [MessageQueue(broker_name=name, queue_id=-1, topic=topic) for name, topic in brokers]
    if member not in members:
        return []
    index = members.index(member)
    if len(members) > len(queues):  # nobody goes without
        return [queues[index % len(queues)]]
    shared = [members[(index + n) % len(members)] for n in range(share_count + 1)]
    return [queue for each in shared for queue in rule(each, queues, members)]
