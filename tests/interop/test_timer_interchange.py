"""One store with messages waiting for their time, passed between Apache's broker and ours.

Whoever has the store when a message is due delivers it: not early, none lost, and after a clean
stop none twice. A message sent to one broker can be recalled at the other.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.harness.apache import broker_on
from tests.harness.processes import Ariane, wait_until
from tests.harness.wire import SEND_V2, Record, Wire, properties_of, send_header

pytestmark = pytest.mark.interop

TOPIC = "Timed"
RECALL = 370
SETTINGS: dict[str, object] = {"recallMessageEnable": True, "mappedFileSizeCommitLog": 1 << 24}


@dataclass
class Waiting:
    """What was timed, by its body."""

    due_ms: dict[str, int] = field(default_factory=dict)
    handles: dict[str, str] = field(default_factory=dict)
    recalled: set[str] = field(default_factory=set)

    def send(self, wire: Wire, name: str, due_ms: int) -> None:
        """Time a message; every other one by its delay."""
        delay_ms = due_ms - now_ms()
        by_delay = len(self.due_ms) % 2 == 0
        asked = {"TIMER_DELAY_MS": delay_ms} if by_delay else {"TIMER_DELIVER_MS": due_ms}
        header = send_header(TOPIC, 0, key=name, tag="T")
        header["i"] = properties_of(
            UNIQ_KEY=f"U-{name}", **{key: str(value) for key, value in asked.items()}
        )
        self.due_ms[name] = due_ms
        self.handles[name] = wire.call(SEND_V2, header, name.encode()).ext["recallHandle"]

    def recall(self, wire: Wire, name: str) -> None:
        """Take a message back, unless the machine is so slow that it is about to come."""
        if now_ms() < self.due_ms[name] - 5000:
            wire.call(RECALL, {"topic": TOPIC, "recallHandle": self.handles[name]})
            self.recalled.add(name)

    def expect(self, wire: Wire, until_ms: int, *, may_repeat: bool) -> None:
        """Everything due by a time has come by then, or within a few seconds, and nothing else."""
        wait_until(lambda: now_ms() > until_ms, "time to pass", seconds=90)
        names = self._due(until_ms)
        wait_until(lambda: names <= {name_of(record) for record in read(wire)}, f"{names}")
        came = [name_of(record) for record in read(wire)]
        assert names <= set(came) <= self._due(now_ms())
        assert may_repeat or len(set(came)) == len(came)
        for record in read(wire):
            dequeued_ms = int(record.properties["TIMER_DEQUEUE_MS"])
            assert dequeued_ms >= self.due_ms[name_of(record)], f"{name_of(record)} was early"

    def _due(self, until_ms: int) -> set[str]:
        return {
            name
            for name, due_ms in self.due_ms.items()
            if due_ms <= until_ms and name not in self.recalled
        }


def now_ms() -> int:
    return int(time.time() * 1000)


def name_of(record: Record) -> str:
    return record.body.decode()


def read(wire: Wire) -> list[Record]:
    return wire.read_queue(TOPIC, 0)


@pytest.mark.parametrize("ending", ["stop", "kill"])
@pytest.mark.parametrize("first", ["ariane", "apache"])
def test_waiting_messages_pass_between_brokers(first: str, ending: str, scratch: Path) -> None:
    second = "apache" if first == "ariane" else "ariane"
    waiting, may_repeat = Waiting(), ending == "kill"
    marks_ms = [0, 0, 0]  # by when what is due then has come
    for turn, kind in enumerate([first, second, first]):
        with broker_on(kind, scratch, turn).start(**SETTINGS) as server:
            with Wire(server.broker) as wire:
                if turn == 0:
                    wire.create_topic(TOPIC, 1)
                    marks_ms = [now_ms() + 3000 + turn * 20_000 for turn in range(3)]
                    for i in range(8):
                        waiting.send(wire, f"soon-{i}", now_ms() + 1000 + i * 150)
                    for i in range(12):
                        waiting.send(wire, f"next-{i}", marks_ms[1] - 3000 + i * 250)
                        waiting.send(wire, f"last-{i}", marks_ms[2] - 3000 + i * 250)
                    waiting.send(wire, "far", now_ms() + 250_000_000)  # rolled on the way
                if turn < 2:
                    waiting.recall(wire, f"last-{turn}")
                    waiting.send(wire, f"more-{turn}", max(marks_ms[2] - 400, now_ms() + 500))
                waiting.expect(wire, marks_ms[turn], may_repeat=may_repeat)
            if ending == "stop":
                server.stop()
            else:
                server.kill()
    with Ariane(scratch / "data").start(**SETTINGS) as last, Wire(last.broker) as wire:
        last_ms = max(due_ms for name, due_ms in waiting.due_ms.items() if name != "far")
        waiting.expect(wire, last_ms, may_repeat=may_repeat)
        info = wire.call(28, {}).body.decode()
        assert '"timerCongestNum":"1"' in info.replace(" ", "")
