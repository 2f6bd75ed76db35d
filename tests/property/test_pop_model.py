"""Pops against an obvious model: every message is acknowledged, or out, or there to be popped.

Random pops, acknowledgements one by one and in batches, changed times, kills, saves and hours that
pass. Whatever happens: what was acknowledged never comes again, what is out is not given to another
before its time is up, and at the end, when all times are up, everything else is there once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from ariane.codes import ResponseCode
from ariane.config import BrokerConfig
from ariane.protocol.command import Command
from tests.unit.broker.pop.popping import Popped, Popping

QUEUES = 2
SLACK_MS = 500  # within which what is due is given back

counts = st.integers(1, 8)
times_ms = st.sampled_from([200, 1_000, 5_000, 60_000])
choices = st.integers(0, 10**6)


@dataclass(frozen=True)
class Delivery:
    """One delivery of one message."""

    popped: Popped
    due_ms: int


class Pops(RuleBasedStateMachine):
    """A broker and what it should know."""

    broker: Popping
    config = BrokerConfig()
    is_ordered = "false"

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.acked: set[bytes] = set()
        self.out: dict[bytes, Delivery] = {}  # the last delivery of each
        self.old: list[Popped] = []  # handles of deliveries before
        self.uncertain: set[bytes] = (
            set()
        )  # acknowledged just when time was up: either way is right

    @initialize(is_v2=st.booleans())
    def start(self, is_v2: bool) -> None:
        self.broker = Popping(BrokerConfig(retry_topics_v2=is_v2), queues=QUEUES)

    @property
    def now_ms(self) -> int:
        return self.broker.clock.wall_ms()

    @rule(count=counts, queue=st.integers(0, QUEUES - 1))
    def send(self, count: int, queue: int) -> None:
        for _ in range(count):
            body = b"%d" % len(self.sent)
            unique = f"UNIQ_KEY\x01U{len(self.sent)}\x02"
            self.broker.send(queue_id=queue, body=body, properties=unique)
            self.sent.append(body)

    @rule(count=counts, invisible_ms=times_ms, queue=st.integers(-1, QUEUES - 1))
    def pop(self, count: int, invisible_ms: int, queue: int) -> None:
        for popped in self.broker.pop(
            maxMsgNums=count, invisibleTime=invisible_ms, queueId=queue, order=self.is_ordered
        ):
            self.delivered(popped)

    def delivered(self, popped: Popped) -> None:
        body = popped.body
        assert body not in self.acked, "acknowledged, and came back"
        known = self.out.get(body)
        if known is not None:
            assert known.due_ms <= self.now_ms, "given to another before its time was up"
            self.old.append(known.popped)
        self.uncertain.discard(body)
        # By the clock: a second delivery within a millisecond is stamped with the next one.
        self.out[body] = Delivery(popped, self.now_ms + popped.invisible_ms)

    @precondition(lambda self: self.out)
    @rule(choice=choices)
    def ack(self, choice: int) -> None:
        body = sorted(self.out)[choice % len(self.out)]
        answer = self.broker.ack(self.out[body].popped)
        assert answer.code == 0
        self.settled(body)

    @precondition(lambda self: self.out)
    @rule(choice=choices)
    def ack_batch(self, choice: int) -> None:
        chosen = [body for n, body in enumerate(sorted(self.out)) if choice >> n & 1]
        if not chosen:
            return
        answer = self.broker.batch_ack(self.out[body].popped for body in chosen)
        assert answer.code == 0
        for body in chosen:
            self.settled(body)

    def settled(self, body: bytes) -> None:
        if self.now_ms < self.out[body].due_ms:
            self.acked.add(body)
            del self.out[body]
        elif body not in self.acked:
            self.uncertain.add(body)

    @precondition(lambda self: self.old)
    @rule(choice=choices)
    def ack_by_an_old_handle(self, choice: int) -> None:
        assert self.broker.ack(self.old[choice % len(self.old)]).code == 0

    @precondition(lambda self: self.out)
    @rule(choice=choices, invisible_ms=times_ms)
    def change(self, choice: int, invisible_ms: int) -> None:
        body = sorted(self.out)[choice % len(self.out)]
        delivery = self.out[body]
        answer = self.broker.change(delivery.popped, invisible_ms)
        if answer.code == ResponseCode.NO_MESSAGE:
            assert self.now_ms >= delivery.due_ms or body in self.uncertain
            return
        assert answer.code == 0
        renewed = self.renewed(delivery.popped, answer)
        if renewed != delivery.popped:
            self.old.append(delivery.popped)
        self.out[body] = Delivery(renewed, self.now_ms + invisible_ms)

    def renewed(self, popped: Popped, answer: Command) -> Popped:
        return replace(
            popped,
            first=popped.offset,
            popped_ms=int(answer.ext["popTime"]),
            invisible_ms=int(answer.ext["invisibleTime"]),
        )

    @rule(ms=st.sampled_from([1, 50, 199, 1_000, 4_900, 30_000]))
    def let_time_pass(self, ms: int) -> None:
        self.broker.clock.advance(ms / 1000)

    @precondition(lambda self: self.out)
    @rule(choice=choices, early_ms=st.sampled_from([1, 90, -150]))
    def wait_for(self, choice: int, early_ms: int) -> None:
        """Let time pass until a message is about to come back, or just has, and pop."""
        due_ms = self.out[sorted(self.out)[choice % len(self.out)]].due_ms - early_ms
        if due_ms > self.now_ms:
            self.broker.clock.advance((due_ms - self.now_ms) / 1000)
            self.pop(8, 5_000, -1)

    @rule()
    def save(self) -> None:
        self.broker.save()

    @rule()
    def kill(self) -> None:
        self.broker = self.broker.killed(queues=QUEUES)

    def teardown(self) -> None:
        if not hasattr(self, "broker"):
            return
        self.broker.clock.advance(60 + SLACK_MS / 1000)
        found: list[bytes] = []
        for _ in range(len(self.sent) + 20):
            lent = self.broker.pop(order=self.is_ordered, invisibleTime=3_600_000)
            for popped in lent:
                assert self.broker.ack(popped).code == 0
            found += [popped.body for popped in lent]
        assert len(found) == len(set(found)), "given back twice"
        assert not set(found) & self.acked, "acknowledged, and came back"
        missing = set(self.sent) - set(found) - self.acked - self.uncertain
        assert not missing, "lost"


class OrderedPops(Pops):
    """The same, in order: of each queue nothing is given before what comes before it."""

    is_ordered = "true"

    def delivered(self, popped: Popped) -> None:
        super().delivered(popped)
        for body, delivery in self.out.items():
            other = delivery.popped
            is_before = other.queue_id == popped.queue_id and other.offset < popped.offset
            if is_before and other.popped_ms != popped.popped_ms and body not in self.uncertain:
                raise AssertionError(f"{popped.body!r} overtook {body!r}")

    def renewed(self, popped: Popped, answer: Command) -> Popped:
        return popped


def _quick(machine: type[Pops]) -> Any:
    case = machine.TestCase
    case.settings = settings(max_examples=15, stateful_step_count=30, deadline=None)
    return case


TestPops = _quick(Pops)
TestOrderedPops = _quick(OrderedPops)
