"""A consumer of pops against a broker without sockets, written plainly after the protocol."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

from ariane.clock import ManualClock
from ariane.codes import RequestCode
from ariane.config import BrokerConfig, StoreConfig
from ariane.disk import SimulatedDisk
from ariane.disk.simulated import CrashMode
from ariane.protocol.command import Command
from ariane.protocol.message import StoredMessage, decode_records
from ariane.protocol.properties import encode_properties
from tests.unit.broker.rig import SMALL_STORE, Peer, Rig

INVISIBLE_MS = 10_000


@dataclass(frozen=True)
class Popped:
    """A message, where it lies, and its handle."""

    message: StoredMessage
    topic: str  # maybe a retry topic
    queue_id: int
    offset: int
    first: int
    popped_ms: int
    invisible_ms: int
    revive_queue_id: int
    mark: str

    @property
    def body(self) -> bytes:
        return self.message.stored_body

    @property
    def handle(self) -> str:
        return (
            f"{self.first} {self.popped_ms} {self.invisible_ms} {self.revive_queue_id}"
            f" {self.mark} broker-a {self.queue_id} {self.offset}"
        )


class Popping(Rig):
    """A broker with a topic, whose clock drives its pops."""

    def __init__(
        self,
        config: BrokerConfig | None = None,
        store_config: StoreConfig = SMALL_STORE,
        disk: SimulatedDisk | None = None,
        *,
        queues: int = 2,
        wall_ms: int | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        super().__init__(config, store_config, disk, clock)
        if wall_ms is not None:
            self.clock.step_wall(wall_ms - self.clock.wall_ms())
        self.state.pop.load(self.disk)
        self.topic("T", queues)
        self.state.groups.for_consumer("g")
        self.state.pop.start(self.timers)

    def save(self) -> None:
        """As the broker does every few seconds."""
        self.state.pop.save()
        self.state.offsets.save()

    def killed(self, **fields: Any) -> Popping:
        """The broker that comes after a kill -9, at the same time of day."""
        disk = self.disk.crash_image(Random(1), CrashMode.KILL)
        now_ms = self.clock.wall_ms()
        config, store_config = self.state.config, self.state.store_config
        return Popping(config, store_config, disk, wall_ms=now_ms, **fields)

    def fill(self, count: int, *, queues: int = 2, **fields: Any) -> list[bytes]:
        bodies = [b"m%d" % n for n in range(count)]
        for n, body in enumerate(bodies):
            unique = {"UNIQ_KEY": f"U{n}"} | fields
            self.send(queue_id=n % queues, body=body, properties=encode_properties(unique))
        return bodies

    def pop_command(self, *, peer: Peer | None = None, **fields: Any) -> Command | None:
        return self.call(RequestCode.POP_MESSAGE, pop_fields(**fields), peer=peer)

    def pop(self, **fields: Any) -> list[Popped]:
        """What a pop that does not wait gives."""
        answer = self.pop_command(**fields)
        assert answer is not None
        assert answer.code in (0, 210), answer
        return popped_of(answer, fields.get("consumerGroup", "g"), fields.get("topic", "T"))

    def ack(self, popped: Popped, *, group: str = "g") -> Command:
        answer = self.call(RequestCode.ACK_MESSAGE, ack_fields(popped, group))
        assert answer is not None
        return answer

    def batch_ack(self, many: Iterable[Popped], *, group: str = "g") -> Command:
        answer = self.call(RequestCode.BATCH_ACK_MESSAGE, body=batch_body(many, group))
        assert answer is not None
        return answer

    def change(self, popped: Popped, invisible_ms: int, *, group: str = "g") -> Command:
        fields = ack_fields(popped, group) | {"invisibleTime": invisible_ms}
        answer = self.call(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)
        assert answer is not None
        return answer


def pop_fields(**fields: Any) -> dict[str, Any]:
    return {
        "consumerGroup": "g", "topic": "T", "queueId": -1, "maxMsgNums": 32,
        "invisibleTime": INVISIBLE_MS, "pollTime": 0, "bornTime": 0, "initMode": 0,
        "expType": "TAG", "exp": "*", "order": "false",
    } | fields  # fmt: skip


def ack_fields(popped: Popped, group: str = "g") -> dict[str, Any]:
    return {
        "consumerGroup": group, "topic": popped.topic, "queueId": popped.queue_id,
        "offset": popped.offset, "extraInfo": popped.handle,
    }  # fmt: skip


def batch_body(many: Iterable[Popped], group: str = "g") -> bytes:
    """One item a checkpoint, as Java's client makes them."""
    items: dict[tuple[Any, ...], int] = {}
    for each in many:
        key = (each.mark, each.queue_id, each.first, each.popped_ms, each.invisible_ms)
        items.setdefault((*key, each.revive_queue_id), 0)
        items[*key, each.revive_queue_id] |= 1 << (each.offset - each.first)
    acks = [
        {
            "b": base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode(),
            "c": group, "it": invisible, "pt": at, "q": queue, "r": mark, "rq": revive,
            "so": first, "t": "T",
        }
        for (mark, queue, first, at, invisible, revive), bits in items.items()
    ]  # fmt: skip
    return json.dumps({"acks": acks, "brokerName": "broker-a"}).encode()


def popped_of(answer: Command, group: str = "g", topic: str = "T") -> list[Popped]:
    """Put the handles together as a client does; fails where a client would."""
    if answer.code != 0:
        return []
    ext = answer.ext
    starts = _elements(ext["startOffsetInfo"])
    offsets = {
        key: list(map(int, text.split(",")))
        for key, text in _elements(ext["msgOffsetInfo"]).items()
    }
    assert starts.keys() == offsets.keys()
    found = []
    for message in decode_records(answer.body):
        assert message.topic == topic
        words = message.properties.get("POP_CK", "").split(" ")
        mark = words[4] if len(words) == 8 else "0"
        key = (mark, message.queue_id)
        assert message.queue_offset in offsets[key]
        first = int(starts[key])
        popped_ms, invisible_ms = int(ext["popTime"]), int(ext["invisibleTime"])
        revive_queue_id = int(ext["reviveQid"])
        if len(words) == 8:
            assert list(map(int, words[:4])) == [first, popped_ms, invisible_ms, revive_queue_id]
            assert words[5:] == ["broker-a", str(message.queue_id), str(message.queue_offset)]
        real = {"0": topic, "1": f"%RETRY%{group}_{topic}", "2": f"%RETRY%{group}+{topic}"}[mark]
        found.append(
            Popped(
                message, real, message.queue_id, message.queue_offset, first, popped_ms,
                invisible_ms, revive_queue_id, mark,
            )
        )  # fmt: skip
    assert len(found) == sum(map(len, offsets.values()))
    return found


def bodies(many: Iterable[Popped]) -> list[bytes]:
    return [each.body for each in many]


def _elements(text: str) -> dict[tuple[str, int], str]:
    found = {}
    for element in text.split(";"):
        mark, queue_id, rest = element.split(" ")
        assert (mark, int(queue_id)) not in found
        found[mark, int(queue_id)] = rest
    return found
