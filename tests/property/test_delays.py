"""Delayed messages against a list of what was sent, through stops, kills and power cuts."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ariane.clock import ManualClock
from ariane.codes import ResponseCode
from ariane.disk import CrashMode, SimulatedDisk
from ariane.protocol.message import StoredMessage, decode_records
from tests.unit.broker.test_schedule import killed, restarted, started

DELAYS_MS = (1_000, 5_000, 10_000)
QUEUES = 2


@dataclass
class Sent:
    """A message as its sender knows it."""

    due_ms: int
    queue_id: int
    level: int
    end_offset: int  # of the log, once it was stored
    delivered_ms: list[int] = field(default_factory=list)


class Delays(RuleBasedStateMachine):
    """Nothing early, nothing lost, nothing late; nothing twice unless power failed."""

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = ManualClock()
        self.rig = started(SimulatedDisk(), self.clock)
        self.sent: dict[str, Sent] = {}
        self.lost_power = False

    @rule(level=st.integers(1, 3), queue_id=st.integers(0, QUEUES - 1), count=st.integers(1, 5))
    def send(self, level: int, queue_id: int, count: int) -> None:
        for _ in range(count):
            name = f"m{len(self.sent)}"
            answer = self.rig.send(
                "T", queue_id, name.encode(), f"UNIQ_KEY\x01{name}\x02DELAY\x01{level}\x02"
            )
            assert answer.code == ResponseCode.SUCCESS
            now_ms = self.clock.wall_ms()
            self.sent[name] = Sent(
                now_ms + DELAYS_MS[level - 1], queue_id, level, self.rig.state.store.written
            )

    @rule(milliseconds=st.sampled_from([1, 50, 400, 1_000, 3_333, 10_000]))
    def wait(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds / 1000)

    @rule()
    def flush(self) -> None:
        self.rig.state.store.flush()

    @rule()
    def save(self) -> None:
        self.rig.state.schedule.save()

    @rule()
    def stop(self) -> None:
        self.rig = restarted(self.rig)

    @rule(mode=st.sampled_from(list(CrashMode)))
    def crash(self, mode: CrashMode) -> None:
        flushed = self.rig.state.store.flushed
        before = self.delivered()
        self.rig = killed(self.rig, mode, self.random.randrange(2**32))
        if mode is not CrashMode.KILL:
            self.lost_power = True
            written = self.rig.state.store.written
            for name, sent in list(self.sent.items()):
                if sent.end_offset > written:
                    assert sent.end_offset > flushed
                    del self.sent[name]  # never safe, and gone
        else:
            assert [one.log_offset for one in self.delivered()] == [
                one.log_offset for one in before
            ]

    def delivered(self) -> list[StoredMessage]:
        found: list[StoredMessage] = []
        store = self.rig.state.store
        for queue_id in range(QUEUES):
            at = 0
            while (page := store.read("T", queue_id, at, count_max=32)).message_count:
                found += decode_records(page.body)
                at = page.next_offset
        return found

    @invariant()
    def all_is_as_sent(self) -> None:
        self.clock.advance(0)
        now_ms = self.clock.wall_ms()
        seen: dict[str, int] = {}
        order: dict[tuple[int, int], list[int]] = {}
        for message in self.delivered():
            name = message.stored_body.decode()
            sent = self.sent[name]
            assert message.stored_at_ms >= sent.due_ms, f"{name} came early"
            assert message.queue_id == sent.queue_id
            seen[name] = seen.get(name, 0) + 1
            order.setdefault((sent.queue_id, sent.level), []).append(int(name[1:]))
        if not self.lost_power:
            assert all(count == 1 for count in seen.values()), "something came twice"
            assert all(numbers == sorted(numbers) for numbers in order.values())
        for name, sent in self.sent.items():
            assert name in seen or sent.due_ms + 1 >= now_ms, f"{name} did not come"


TestDelays = Delays.TestCase
TestDelays.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
