"""The lane of pops against the handlers it stands in for: the same frames through both.

One broker reads its frames by the lane; its twin gives each to the handlers. Acknowledgements are
made of the answers as a client would. Every byte on their disks, every answer and everybody's place
must be equal.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.broker.dispatch import dispatch
from ariane.codes import RequestCode
from ariane.config import StoreConfig
from ariane.protocol.command import Command, CommandDecoder
from tests.property.test_lane import RawPeer
from tests.unit.broker.pop.popping import Popped, Popping, ack_fields, pop_fields, popped_of
from tests.unit.broker.rig import SMALL_STORE, send_fields

SYNC = msgspec.structs.replace(SMALL_STORE, flush_mode="SYNC_FLUSH")


class Twin:
    """One of the two brokers."""

    def __init__(self, store_config: StoreConfig) -> None:
        self.broker = Popping(store_config=store_config)
        self.broker.topic("U", 1)
        self.peer = RawPeer()
        self.reader = self.broker.state.lane.reader_of(self.peer)  # type: ignore[arg-type]

    def answers(self, frames: list[bytes], *, by_lane: bool) -> list[bytes]:
        self.peer.raw.clear()
        if by_lane:
            data = b"".join(frames)
            for first in range(0, len(data), 100_000):
                piece = data[first : first + 100_000]
                self.reader.get_buffer(-1)[: len(piece)] = piece
                commands = self.reader.received(len(piece))
                while commands:
                    self._handle(commands)
                    commands = self.reader.received(0)
        else:
            for frame in frames:
                self._handle(CommandDecoder().feed(frame))
        return self.peer.answers()

    def _handle(self, commands: list[Command]) -> None:
        for command in commands:
            answer = dispatch(self.broker.state, self.peer, command)  # type: ignore[arg-type]
            if answer is not None:
                self.peer.send_bytes(answer.encode())

    def files(self) -> dict[str, bytes]:
        self.broker.save()
        self.broker.state.store.flush()
        disk = self.broker.disk
        return {
            path: bytes(inode.live)
            for path, inode in disk._files.items()
            if not path.startswith("config/")
        }

    def places(self) -> tuple[Any, ...]:
        state = self.broker.state
        checkpoints = {
            checkpoint.key: (
                checkpoint.gaps, checkpoint.settled, checkpoint.invisible_ms,
                checkpoint.revive_queue_id, checkpoint.journal_offset, checkpoint.log_offset,
            )
            for checkpoint in state.pop.checkpoints
        }  # fmt: skip
        totals = state.stats.got_total(), state.stats.put_total()
        return (
            {group: dict(state.offsets.progress("T", group)) for group in ("g", "h")},
            checkpoints,
            state.pop.lane.turn,
            state.pop.journal.known_ends,
            [(total.messages, total.bytes) for total in totals],
        )


def frame(code: int, fields: dict[str, Any], body: bytes = b"", opaque: int = 1) -> bytes:
    ext = {name: str(value) for name, value in fields.items()}
    return Command(code, opaque=opaque, ext=ext, body=body).encode()


def batch(many: list[Popped], group: str) -> bytes:
    """As popping.batch_body, in compact JSON with the names in Java's order."""
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
    document = {"acks": acks, "brokerName": "broker-a"}
    return json.dumps(document, separators=(",", ":")).encode()


Step = tuple[str, dict[str, Any]]
sends = st.fixed_dictionaries(
    {
        "count": st.integers(1, 40),
        "queue": st.integers(0, 1),
        "tag": st.sampled_from(["", "a", "b"]),
    }
)
pops = st.fixed_dictionaries(
    {
        "consumerGroup": st.sampled_from(["g", "h"]),
        "maxMsgNums": st.sampled_from([1, 2, 7, 32, 33, 0]),
        "queueId": st.sampled_from([-1, -1, -1, 0, 1, 2, -2]),
        "invisibleTime": st.sampled_from([1_000, 60_000, -1]),
        "exp": st.sampled_from(["*", "*", "a", "a || b", ""]),
        "order": st.sampled_from(["false", "false", "false", "true", "x"]),
        "bornTime": st.sampled_from([0, 1_700_000_000_000, 1_600_000_000_000]),
        "attemptId": st.sampled_from(["", "x"]),
    }
)
acks = st.fixed_dictionaries({"choice": st.integers(0, 2**40), "is_batch": st.booleans()})
oddities = st.fixed_dictionaries(
    {
        "field": st.sampled_from(["extraInfo", "offset", "queueId", "topic", "consumerGroup"]),
        "value": st.sampled_from(
            ["", "-1", "0", "x", "99999", "0 1 2 3 0 b", "T", "h", "%RETRY%g_T"]
        ),
    }
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), sends),
        st.tuples(st.just("pop"), pops),
        st.tuples(st.just("pop"), pops),
        st.tuples(st.just("ack"), acks),
        st.tuples(st.just("ack"), acks),
        st.tuples(st.just("odd"), oddities),
        st.tuples(st.just("pass"), st.fixed_dictionaries({"s": st.sampled_from([0.2, 1.5, 61])})),
        st.tuples(st.just("topic"), st.fixed_dictionaries({"queues": st.sampled_from([2, 3])})),
        st.tuples(st.just("reset"), st.fixed_dictionaries({"to": st.integers(0, 5)})),
    ),
    max_size=30,
)


class Run:
    """Steps carried out by both, compared after each."""

    def __init__(self, store_config: StoreConfig) -> None:
        self.twins = [Twin(store_config), Twin(store_config)]
        self.lent: dict[str, list[Popped]] = {"g": [], "h": []}
        self.opaque = 0

    def frames(self, frames: list[bytes]) -> list[bytes]:
        first = self.twins[0].answers(frames, by_lane=True)
        second = self.twins[1].answers(frames, by_lane=False)
        assert first == second
        return first

    def step(self, kind: str, given: dict[str, Any]) -> None:
        getattr(self, f"_{kind}")(**given)
        assert self.twins[0].places() == self.twins[1].places()

    def _send(self, count: int, queue: int, tag: str) -> None:
        frames = []
        for n in range(count):
            self.opaque += 1
            properties = f"UNIQ_KEY\x01U{self.opaque}\x02" + (f"TAGS\x01{tag}\x02" if tag else "")
            fields = send_fields(queue_id=queue, properties=properties)
            frames.append(frame(RequestCode.SEND_MESSAGE_V2, fields, b"m%d" % n, self.opaque))
        self.frames(frames)

    def _pop(self, **fields: Any) -> None:
        given = pop_fields(**fields)
        if not given["bornTime"]:
            given["bornTime"] = self.twins[0].broker.clock.wall_ms()
        for data in self.frames([frame(RequestCode.POP_MESSAGE, given)]):
            (answer,) = CommandDecoder().feed(data)
            if answer.code == 0:
                group = given["consumerGroup"]
                self.lent[group] += popped_of(answer, group)

    def _ack(self, choice: int, is_batch: bool) -> None:
        for group, lent in self.lent.items():
            chosen = [each for n, each in enumerate(lent[-40:]) if choice >> n & 1]
            if not chosen:
                continue
            if is_batch:
                self.frames([frame(RequestCode.BATCH_ACK_MESSAGE, {}, batch(chosen, group))])
            else:
                self.frames(
                    [
                        frame(RequestCode.ACK_MESSAGE, ack_fields(each, group), opaque=n)
                        for n, each in enumerate(chosen)
                    ]
                )

    def _odd(self, field: str, value: str) -> None:
        for lent in self.lent.values():
            if lent:
                fields = ack_fields(lent[-1]) | {field: value}
                self.frames([frame(RequestCode.ACK_MESSAGE, fields)])

    def _pass(self, s: float) -> None:
        for twin in self.twins:
            twin.broker.clock.advance(s)

    def _topic(self, queues: int) -> None:
        for twin in self.twins:
            twin.broker.topic("T", queues)

    def _reset(self, to: int) -> None:
        for twin in self.twins:
            twin.broker.state.offsets.reset("T", "g", {0: to})


@pytest.mark.parametrize("store_config", [SMALL_STORE, SYNC], ids=["async", "sync"])
@given(steps=steps)
@settings(max_examples=30)
def test_the_lane_is_not_noticed(store_config: StoreConfig, steps: list[Step]) -> None:
    run = Run(store_config)
    for kind, given_fields in steps:
        run.step(kind, given_fields)
    for twin in run.twins:
        twin.broker.state.store.checkpoint()  # what queues and index keep back is in files then
    assert run.twins[0].files() == run.twins[1].files()


def test_plain_pops_and_acknowledgements_do_take_the_lane() -> None:
    run = Run(SMALL_STORE)
    plain = {"consumerGroup": "g", "maxMsgNums": 8}
    for _ in range(10):
        run.step("send", {"count": 20, "queue": 0, "tag": "a"})
        run.step("send", {"count": 20, "queue": 1, "tag": "a"})
        run.step("pop", plain)
        run.step("pop", plain | {"exp": "a"})
        run.step("ack", {"choice": 0xFF, "is_batch": False})
        run.step("ack", {"choice": 0xFFFF, "is_batch": True})
        run.lent["g"].clear()
    lane, handlers = (twin.broker.state.pop.lane.request_count for twin in run.twins)
    assert lane > 80
    assert handlers == 0
    for twin in run.twins:
        twin.broker.state.store.checkpoint()  # what queues and index keep back is in files then
    assert run.twins[0].files() == run.twins[1].files()
