"""Consumers that pop, over the wire: what they got, what they acknowledged, and when."""

import base64
import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from tests.harness.wire import Record, Wire, decode_records

POP, ACK, BATCH_ACK, CHANGE_INVISIBLE = 200050, 200051, 200151, 200053
FOUND, EMPTY = 0, (209, 210)
MARGIN_S = 0.4  # an acknowledgement this close to the end of its time may be too late


@dataclass(frozen=True, slots=True)
class Lent:
    """One delivery of one message."""

    body: bytes
    topic: str
    queue_id: int
    queue_offset: int
    first: int
    popped_ms: int
    invisible_ms: int
    revive_queue_id: int
    mark: str
    at_s: float

    @property
    def handle(self) -> str:
        """What names it."""
        return (
            f"{self.first} {self.popped_ms} {self.invisible_ms} {self.revive_queue_id}"
            f" {self.mark} broker-a {self.queue_id} {self.queue_offset}"
        )

    @property
    def checkpoint(self) -> tuple[object, ...]:
        """What it shares with the other messages of its pop and queue."""
        return (self.mark, self.queue_id, self.first, self.popped_ms)


class Popper(Wire):
    """A connection of a group that pops one topic."""

    topic = "T"
    group = "g"

    def use(self, topic: str, group: str) -> "Popper":
        """Pop this topic for this group."""
        self.topic, self.group = topic, group
        return self

    def pop(
        self, count: int = 32, *, invisible_ms: int = 10_000, poll_ms: int = 0, order: bool = False
    ) -> list[Lent]:
        """Messages, or none."""
        at_s = time.monotonic()
        fields = {
            "consumerGroup": self.group, "topic": self.topic, "queueId": "-1",
            "maxMsgNums": str(count), "invisibleTime": str(invisible_ms), "pollTime": str(poll_ms),
            "bornTime": str(int(time.time() * 1000)), "initMode": "0", "expType": "TAG",
            "exp": "*", "order": str(order).lower(),
        }  # fmt: skip
        answer = self.call(POP, fields, check=False)
        if answer.code in EMPTY:
            return []
        assert answer.code == FOUND, f"{answer.code}: {answer.remark}"
        starts = dict(_elements(answer.ext["startOffsetInfo"]))
        return [
            self._lent(record, starts, answer.ext, at_s) for record in decode_records(answer.body)
        ]

    def _lent(
        self, record: Record, starts: dict[str, str], ext: dict[str, str], at_s: float
    ) -> Lent:
        words = record.properties.get("POP_CK", "").split(" ")
        mark = words[4] if len(words) == 8 else "0"
        names = {"0": self.topic, "1": f"%RETRY%{self.group}_{self.topic}"}
        return Lent(
            record.body,
            names[mark],
            record.queue_id,
            record.queue_offset,
            int(starts[f"{mark} {record.queue_id}"]),
            int(ext["popTime"]),
            int(ext["invisibleTime"]),
            int(ext["reviveQid"]),
            mark,
            at_s,
        )

    def ack(self, lent: Lent) -> int:
        """Acknowledge one message; the answer's code."""
        fields = {
            "consumerGroup": self.group, "topic": lent.topic, "queueId": str(lent.queue_id),
            "offset": str(lent.queue_offset), "extraInfo": lent.handle,
        }  # fmt: skip
        return self.call(ACK, fields, check=False).code

    def ack_all(self, many: Sequence[Lent]) -> int:
        """Acknowledge several messages in one request; the answer's code."""
        items = []
        for _, each in groupby(sorted(many, key=_order), key=lambda lent: lent.checkpoint):
            group = list(each)
            bits = sum(1 << (lent.queue_offset - lent.first) for lent in group)
            one = group[0]
            text = base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little"))
            items.append(
                {
                    "b": text.decode(), "c": self.group, "it": one.invisible_ms,
                    "pt": one.popped_ms, "q": one.queue_id, "r": one.mark,
                    "rq": one.revive_queue_id, "so": one.first, "t": self.topic,
                }
            )  # fmt: skip
        body = json.dumps({"acks": items, "brokerName": "broker-a"}, separators=(",", ":"))
        return self.call(BATCH_ACK, {}, body.encode(), check=False).code

    def change(self, lent: Lent, invisible_ms: int) -> int:
        """Keep a message for another time; the answer's code."""
        fields = {
            "consumerGroup": self.group, "topic": lent.topic, "queueId": str(lent.queue_id),
            "offset": str(lent.queue_offset), "extraInfo": lent.handle,
            "invisibleTime": str(invisible_ms),
        }  # fmt: skip
        return self.call(CHANGE_INVISIBLE, fields, check=False).code


def _order(lent: Lent) -> tuple[str, int, int, int]:
    return (lent.mark, lent.queue_id, lent.first, lent.popped_ms)


def _elements(text: str) -> list[tuple[str, str]]:
    """`mark queue` and what is said of it."""
    parts = [element.rsplit(" ", 1) for element in text.split(";")]
    return [(place, said) for place, said in parts]


@dataclass
class Ledger:
    """What became of each message, in the eyes of all consumers together."""

    deliveries: list[tuple[float, bytes]] = field(default_factory=list)
    owed: dict[bytes, bool] = field(
        default_factory=dict
    )  # nobody asked to settle its last delivery
    acked: dict[bytes, float] = field(default_factory=dict)  # in time: it must never be seen again

    def seen_again(self) -> list[bytes]:
        """What came once more after the server had taken its acknowledgement."""
        return [body for at_s, body in self.deliveries if at_s > self.acked.get(body, at_s)]

    def lent(self, many: Sequence[Lent]) -> None:
        """Note deliveries."""
        now_s = time.monotonic()
        self.deliveries += [(now_s, each.body) for each in many]
        self.owed |= {each.body: True for each in many}

    def settling(self, many: Sequence[Lent]) -> None:
        """Note that an acknowledgement is sent; a kill may take the answer, and it count or not."""
        self.owed |= {each.body: False for each in many}

    def settled(self, many: Sequence[Lent]) -> None:
        """Note that the server said yes; to one whose time was over by then that means nothing."""
        now_s = time.monotonic()
        self.acked |= {
            each.body: now_s
            for each in many
            if now_s - each.at_s < each.invisible_ms / 1000 - MARGIN_S
        }


class Consumer(threading.Thread):
    """Pops and acknowledges until the server goes away or it is told to stop.

    It forgets some messages, and acknowledges the rest one by one or together.
    """

    def __init__(
        self, popper: Popper, ledger: Ledger, dice: random.Random, invisible_ms: int
    ) -> None:
        super().__init__(daemon=True)
        self.popper = popper
        self.ledger = ledger
        self.dice = dice
        self.invisible_ms = invisible_ms
        self.faults: list[str] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        try:
            with self.popper:
                while not self.stopping.is_set():
                    self._once()
        except OSError:
            pass  # killed under us, as the test intends
        except AssertionError as fault:
            self.faults.append(str(fault))

    def _once(self) -> None:
        count = self.dice.choice((1, 4, 32))
        lent = self.popper.pop(count, invisible_ms=self.invisible_ms, poll_ms=300)
        self.ledger.lent(lent)
        kept = [each for each in lent if self.dice.random() < 0.9]
        if kept and self.dice.random() < 0.5:
            self._settle(kept, self.popper.ack_all)
        else:
            for each in kept:
                self._settle([each], lambda many: self.popper.ack(many[0]))

    def _settle(self, many: Sequence[Lent], ack: Callable[[Sequence[Lent]], int]) -> None:
        self.ledger.settling(many)
        code = ack(many)
        assert code == 0, f"acknowledgement answered {code}"
        self.ledger.settled(many)
