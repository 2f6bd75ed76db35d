"""The client's kernel against the protocol package, which says what its bytes must be."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ariane.client.hot_sends import BatchBody, HotSends, Receipts, SendLane, Target
from ariane.client.messages import Message, SendReceipt, SendStatus, properties_of
from ariane.client.parcels import pack, properties_text
from ariane.client.receipts import receipts_of
from ariane.client.settings import SendSettings
from ariane.codes import PROTOCOL_VERSION, RequestCode, ResponseCode
from ariane.errors import FrameError, RequestFailed
from ariane.kernel.unique_keys import KeyMaker
from ariane.protocol.bodies import MessageQueue
from ariane.protocol.command import Command, Serializer, command_of, reply, request
from ariane.protocol.headers.send import SendHeaderV2, SendReply
from ariane.protocol.identifiers import UniqueKeys, _month_of
from ariane.protocol.message import BatchEntry, encode_batch

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
QUEUE = MessageQueue(topic="orders", broker_name="broker-a", queue_id=3)


def target_of(queue: MessageQueue, group: str = "g", *, is_batch: bool = False) -> Target:
    return Target(
        queue,
        "127.0.0.1:10911",
        code=RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2,
        group=group,
        default_topic="TBW102",
        default_queue_count=4,
        is_batch=is_batch,
        flag=0,
        language="PYTHON",
        version=PROTOCOL_VERSION,
    )


@given(
    queue=st.builds(MessageQueue, topic=TEXT, broker_name=TEXT, queue_id=INT32),
    group=TEXT,
    properties=TEXT,
    body=st.binary(max_size=100),
    system_flag=INT32,
    flag=INT32,
    born_ms=INT64,
    opaque=INT32,
    is_batch=st.booleans(),
)
@example(
    queue=QUEUE,
    group="g",
    properties="".join(map(chr, range(256))),
    body=b"",
    system_flag=0,
    flag=0,
    born_ms=0,
    opaque=0,
    is_batch=False,
)
def test_a_frame_is_what_the_protocol_package_writes(
    *,
    queue: MessageQueue,
    group: str,
    properties: str,
    body: bytes,
    system_flag: int,
    flag: int,
    born_ms: int,
    opaque: int,
    is_batch: bool,
) -> None:
    header = SendHeaderV2(
        group=group,
        topic=queue.topic,
        default_topic="TBW102",
        default_queue_count=4,
        queue_id=queue.queue_id,
        system_flag=system_flag,
        born_at_ms=born_ms,
        flag=flag,
        properties=properties,
        reconsume_times=0,
        unit_mode=False,
        is_batch=is_batch,
        broker_name=queue.broker_name,
    )
    code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
    command = request(code, header, body, opaque=opaque)
    command.language = "PYTHON"
    target = target_of(queue, group, is_batch=is_batch)
    assert target.frame(opaque, properties, body, system_flag, flag, born_ms) == command.encode()


@given(
    st.lists(
        st.builds(BatchEntry, body=st.binary(max_size=50), properties=TEXT, flag=INT32), max_size=5
    )
)
def test_a_batch_is_what_the_protocol_package_writes(entries: list[BatchEntry]) -> None:
    body = BatchBody()
    for entry in entries:
        body.add(entry.body, entry.properties, entry.flag)
    assert (body.count, body.size) == (len(entries), len(encode_batch(entries)))
    assert body.take() == encode_batch(entries)
    assert (body.count, body.size, body.take()) == (0, 0, b"")


@given(head=st.binary(max_size=22), bodies=st.lists(st.binary(max_size=50), max_size=5))
def test_a_plain_message_of_a_batch_has_a_key_and_nothing_else(
    head: bytes, bodies: list[bytes]
) -> None:
    body, keys, twin = BatchBody(), KeyMaker(head, _month_of), KeyMaker(head, _month_of)
    entries = []
    for number, one in enumerate(bodies):
        message_id = body.add_plain(one, keys, 1_700_000_000_000 + number)
        assert message_id == twin.next(1_700_000_000_000 + number)
        properties = properties_text(Message("orders", one), message_id)
        entries.append(BatchEntry(body=one, properties=properties, flag=0))
    assert body.take() == encode_batch(entries)


@given(head=st.binary(max_size=22), moments=st.lists(st.integers(0, 1 << 42), max_size=20))
def test_unique_keys_tell_the_month_and_count(head: bytes, moments: list[int]) -> None:
    keys = KeyMaker(head, _month_of)
    for number, moment_ms in enumerate(moments, 1):
        moment = datetime.datetime.fromtimestamp(moment_ms // 1000, datetime.UTC)
        first = moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        since_ms = moment_ms - int(first.timestamp()) * 1000
        assert keys.next(moment_ms) == f"{head.hex().upper()}{since_ms:08X}{number:04X}"


class Future:
    """As much of a future as a lane needs."""

    def __init__(self) -> None:
        self.outcome: Any = None

    def done(self) -> bool:
        return self.outcome is not None

    def set_result(self, outcome: object) -> None:
        self.outcome = outcome


class World:
    """A lane without a loop: what it writes, and when it wants to be looked at."""

    def __init__(self) -> None:
        self.written = b""
        self.scheduled = 0
        self.armed: list[float] = []
        self.scratch = bytearray(1 << 16)
        self.lane = SendLane(
            Receipts(SendReceipt, SendStatus.OK),
            decode=command_of,
            make_future=Future,  # type: ignore[arg-type]
            schedule=self._schedule,
            arm=self.armed.append,
            write=self._write,
            now_s=lambda: 7.5,
            scratch=self.scratch,
            frame_bytes_max=1 << 20,
            header_bytes_max=1 << 16,
        )

    def _schedule(self) -> None:
        self.scheduled += 1

    def _write(self, data: bytes) -> None:
        self.written += data

    def send(self, message_ids: str | list[str], deadline_s: float = 3.0) -> Any:
        target = target_of(QUEUE, is_batch=isinstance(message_ids, list))
        return self.lane.send(target, message_ids, "", b"body", 0, 0, 0, deadline_s)

    def asked(self) -> list[Command]:
        self.lane.flush()
        data, self.written = self.written, b""
        commands = []
        while data:
            size = 4 + int.from_bytes(data[:4], "big")
            commands.append(command_of(data[:size]))
            data = data[size:]
        return commands

    def feed(self, data: bytes) -> list[Command]:
        self.scratch[: len(data)] = data
        return self.lane.received(len(data))


WORDS = st.text('AB,\x00"\\ä', max_size=6)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "queueId": st.sampled_from(["3", "4", "-1", "03", "x", ""]),
        "queueOffset": st.sampled_from(["0", "7", "-1", "9" * 18, "9" * 19]),
        "msgId": WORDS,
        "transactionId": WORDS | st.just("ID"),
        "recallHandle": WORDS,
        "MSG_REGION": WORDS,
        "TRACE_ON": st.sampled_from(["true", "false", ""]),
        "other": WORDS,
    },
)


@given(
    ext=HEADERS,
    code=st.sampled_from([0, 0, 0, 2, 10, 13]),
    flag=st.sampled_from([1, 1, 1, 0]),
    remark=st.none() | WORDS,
    serializer=st.sampled_from(Serializer),
    message_ids=st.just("ID") | st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=3),
    cuts=st.lists(st.integers(1, 40), max_size=8),
)
def test_an_answer_means_what_its_command_means(
    *,
    ext: dict[str, str],
    code: int,
    flag: int,
    remark: str | None,
    serializer: Serializer,
    message_ids: str | list[str],
    cuts: list[int],
) -> None:
    world = World()
    future = world.send(message_ids)
    (asked,) = world.asked()
    answer = Command(
        code,
        opaque=asked.opaque,
        flag=flag,
        remark=remark,
        ext=ext,
        serializer=serializer,
        body=b"",
    )
    wire = answer.encode()
    handed: list[Command] = []
    for cut in cuts:
        handed += world.feed(wire[:cut])
        wire = wire[cut:]
    handed += world.feed(wire) if wire else []
    expected = command_of(answer.encode())
    if not flag:
        assert handed == [expected]
        assert not future.done()
        return
    assert handed == []
    assert world.lane.pending_count == 0
    if isinstance(future.outcome, Command):
        assert future.outcome == expected
    else:
        target = target_of(QUEUE, is_batch=isinstance(message_ids, list))
        assert future.outcome == receipts_of(expected, target, message_ids)


def stored(opaque: int, ids: str = "AB", queue_offset: int = 5) -> bytes:
    header = SendReply(queue_id=3, message_id=ids, queue_offset=queue_offset, region="R")
    return reply(Command(310, opaque=opaque), header=header).encode()


def test_a_plain_answer_is_a_receipt_at_once() -> None:
    world = World()
    one, two = world.send("one"), world.send(["x", "y"])
    first, second = world.asked()
    assert world.scheduled == 1
    assert world.feed(stored(second.opaque, "AA,BB") + stored(first.opaque)) == []
    assert world.lane.heard_s == 7.5
    assert one.outcome == SendReceipt(SendStatus.OK, "one", "AB", QUEUE, 5, None, None, "R")
    assert two.outcome == [
        SendReceipt(SendStatus.OK, "x", "AA", QUEUE, 5, None, None, "R"),
        SendReceipt(SendStatus.OK, "y", "BB", QUEUE, 6, None, None, "R"),
    ]


def test_answers_to_others_and_requests_are_handed_over_in_order() -> None:
    world = World()
    future = world.send("one")
    (asked,) = world.asked()
    others = [Command(40, flag=2), Command(0, opaque=7, flag=1, body=b"x" * 300)]
    wire = others[0].encode() + stored(asked.opaque) + others[1].encode()
    assert world.feed(wire[:-100]) + world.feed(wire[-100:]) == others
    assert future.done()
    assert world.lane.frame_count == 3
    assert world.lane.partial_bytes == 0


def test_a_refusal_is_told_as_it_came() -> None:
    world = World()
    future = world.send("one")
    (asked,) = world.asked()
    refusal = reply(asked, ResponseCode.SYSTEM_BUSY, remark='"busy"')
    assert world.feed(refusal.encode()) == []
    assert future.outcome.remark == '"busy"'
    with pytest.raises(RequestFailed, match="busy"):
        receipts_of(future.outcome, target_of(QUEUE), "one")


def test_deadlines_end_those_that_are_late_and_only_those() -> None:
    world = World()
    late, early = world.send("a", 3.0), world.send("b", 2.0)
    last = world.send("c", 5.0)
    assert world.armed == [3.0, 2.0]
    assert world.lane.expire(2.0) == [early]
    assert world.armed == [3.0, 2.0, 3.0]
    assert world.lane.expire(4.0) == [late]
    assert world.lane.unanswered() == [last]
    assert world.lane.abandon() == [last]
    assert world.lane.expire(9.0) == []


@pytest.mark.parametrize(
    "wire",
    [
        b"\x00\x00\x00\x03\x00\x00\x00\x00",
        b"\x7f\xff\xff\xff\x00\x00\x00\x04",
        b"\x00\x00\x00\x08\x00\x00\x00\x09",
        b"\x00\x00\x00\x08\x05\x00\x00\x01",
        b"\x00\x02\x00\x00\x00\x01\x10\x00",
    ],
)
def test_lengths_that_cannot_be_true_close_the_connection(wire: bytes) -> None:
    world = World()
    before = Command(40, flag=2)
    assert world.feed(before.encode() + wire) == [before]
    with pytest.raises(FrameError):
        world.lane.received(0)
    with pytest.raises(FrameError):
        world.lane.received(0)


def test_a_lot_that_gathers_is_written_at_once() -> None:
    world = World()
    target = target_of(QUEUE)
    for _ in range(5):
        world.lane.post(target, "", bytes(100_000), 0, 0, 0)
    assert len(world.written) > 256 << 10
    world.lane.flush()
    assert len(world.written) > 500_000


def test_keys_of_a_client_are_never_the_same() -> None:
    class Clock:
        def wall_ms(self) -> int:
            return 1_700_000_000_000

    class Dice:
        def getrandbits(self, k: int, /) -> int:
            return 1

    keys = UniqueKeys(Clock(), Dice(), process_id=1)
    assert len({keys.next() for _ in range(65_536)}) == 65_536


@given(
    tags=st.text("Aä", max_size=3),
    keys=st.lists(st.text("kü", min_size=1, max_size=3), max_size=2),
    properties=st.dictionaries(
        st.text('ab"\\', min_size=1), st.text("xy\n", min_size=1), max_size=2
    ),
    level=st.integers(0, 3),
    wait=st.booleans(),
    flag=INT32,
    body=st.binary(min_size=1, max_size=20),
)
def test_a_shortcut_sends_what_the_whole_way_would(
    *,
    tags: str,
    keys: list[str],
    properties: dict[str, str],
    level: int,
    wait: bool,
    flag: int,
    body: bytes,
) -> None:
    message = Message(
        "orders",
        body,
        tags=tags,
        keys=keys,
        properties=properties,
        delay_level=level,
        wait=wait,
        flag=flag,
    )
    world = World()
    hot = hot_of(world)
    text = properties_of(message)
    waiting = hot.send(message.topic, message.body, text, message.wait, message.flag, 3.0)
    assert waiting is not None
    twin = KeyMaker(b"", _month_of).next(1_700_000_000_000)
    parcel = pack(message, twin, 1_700_000_000_000, SendSettings())
    assert (waiting.message_ids, waiting.born_ms) == (twin, parcel.born_ms)
    assert (waiting.asked_s, waiting.deadline_s) == (5.0, 8.0)
    (asked,) = world.asked()
    whole = World()
    whole.lane.send(
        target_of(QUEUE),
        parcel.message_ids,
        parcel.properties,
        parcel.body,
        parcel.system_flag,
        parcel.flag,
        parcel.born_ms,
        8.0,
    )
    assert [asked] == whole.asked()


def hot_of(world: World, *, pending_max: int = 100) -> HotSends:
    hot = HotSends(
        wall_ms=lambda: 1_700_000_000_000,
        monotonic_s=lambda: 5.0,
        body_bytes_end=100,
        pending_max=pending_max,
    )
    hot.learn("orders", [target_of(QUEUE)], [world.lane], KeyMaker(b"", _month_of), 0)
    return hot


def test_queues_of_a_shortcut_take_turns() -> None:
    world = World()
    queues = [MessageQueue(topic="orders", broker_name="b", queue_id=n) for n in range(3)]
    hot = hot_of(world)
    targets = [target_of(queue) for queue in queues]
    hot.learn("orders", targets, [world.lane] * 3, KeyMaker(b"", _month_of), 7)
    sent = [hot.send("orders", b"x", "", True, 0, 1.0) for _ in range(4)]
    assert [one and one.target.queue.queue_id for one in sent] == [1, 2, 0, 1]
    assert len({one.message_ids for one in sent if one}) == 4  # type: ignore[arg-type]


NOT_FOR_HERE: dict[str, tuple[object, object, str]] = {
    "a topic that was not learnt": ("bills", b"x", ""),
    "no body": ("orders", None, ""),
    "an empty body": ("orders", b"", ""),
    "a long body": ("orders", bytes(100), ""),
    "a text": ("orders", "text", ""),
    "long properties": ("orders", b"x", "x" * (17 << 10)),
    "no topic": (None, b"x", ""),
}


@pytest.mark.parametrize(("topic", "body", "properties"), NOT_FOR_HERE.values(), ids=NOT_FOR_HERE)
def test_what_goes_the_whole_way(topic: Any, body: object, properties: str) -> None:
    world = World()
    hot = hot_of(world)
    assert hot.send(topic, body, properties, True, 0, 1.0) is None
    assert world.asked() == []


def test_a_shortcut_is_closed_when_something_changed() -> None:
    world = World()
    hot = hot_of(world, pending_max=2)
    assert hot.knows("orders")
    assert hot.send("orders", b"x", "", True, 0, 1.0)
    assert hot.send("orders", b"x", "", True, 0, 1.0)
    assert hot.send("orders", b"x", "", True, 0, 1.0) is None  # too many wait
    world.lane.abandon()
    assert hot.send("orders", b"x", "", True, 0, 1.0) is None  # the connection is gone
    hot.forget()
    assert not hot.knows("orders")
    hot.learn("orders", [target_of(QUEUE)], [None], KeyMaker(b"", _month_of), 0)
    assert not hot.knows("orders")
    assert hot.send("orders", b"x", "", True, 0, 1.0) is None  # there is no connection yet
    with pytest.raises(ValueError, match="queues"):
        hot.learn("orders", [], [], KeyMaker(b"", _month_of), 0)
