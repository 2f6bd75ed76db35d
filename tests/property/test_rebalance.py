"""Whatever comes and goes: each queue has one reader, and every member works out the same."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from ariane.client.rebalance import Average, Circle, ConsistentHash, MachineRoomNearby, allocate
from ariane.protocol.bodies import MessageQueue

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=6)
STRATEGIES = [
    Average(),
    Circle(),
    ConsistentHash(),
    MachineRoomNearby(Average(), lambda queue: queue.broker_name[:1], lambda member: member[:1]),
]


@given(
    strategy=st.sampled_from(STRATEGIES),
    brokers=st.lists(NAMES, min_size=1, max_size=4, unique=True),
    count=st.integers(0, 9),
    members=st.lists(NAMES, min_size=1, max_size=6, unique=True),
    random=st.randoms(use_true_random=False),
)
def test_each_queue_has_one_reader(
    strategy: Average, brokers: list[str], count: int, members: list[str], random: Random
) -> None:
    queues = [
        MessageQueue(topic="t", broker_name=broker, queue_id=number)
        for broker in brokers
        for number in range(count)
    ]
    shares = []
    for member in members:  # each hears of queues and members in an order of its own
        random.shuffle(queues)
        shares += allocate(strategy, member, queues, random.sample(members, len(members)))
    assert sorted(shares) == sorted(queues)


@given(count=st.integers(0, 50), members=st.integers(1, 20))
def test_shares_differ_by_one_at_most(count: int, members: int) -> None:
    queues = [MessageQueue(topic="t", broker_name="b", queue_id=number) for number in range(count)]
    names = [f"m{number}" for number in range(members)]
    for strategy in (Average(), Circle()):
        sizes = [len(allocate(strategy, name, queues, names)) for name in names]
        assert max(sizes) - min(sizes) <= 1


@given(members=st.integers(2, 12), leaving=st.integers(0, 11))
def test_with_a_consistent_hash_only_the_leavers_queues_move(members: int, leaving: int) -> None:
    queues = [MessageQueue(topic="t", broker_name="b", queue_id=number) for number in range(32)]
    names = [f"10.0.0.{number}@{number}" for number in range(members)]
    gone = names[leaving % members]
    left = [name for name in names if name != gone]
    for name in left:
        before = allocate(ConsistentHash(), name, queues, names)
        assert set(before) <= set(allocate(ConsistentHash(), name, queues, left))
