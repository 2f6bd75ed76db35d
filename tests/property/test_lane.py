"""The hot lane against the handlers it stands in for: the same frames through both.

One broker reads its frames by the lane, in pieces of any size; its twin decodes each frame and
gives it to the handlers. Every byte on their disks and every answer must be equal.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ariane.broker.dispatch import dispatch
from ariane.clock import ManualClock
from ariane.codes import PullFlag, RequestCode
from ariane.config import BrokerConfig, StoreConfig
from ariane.errors import ProtocolError
from ariane.protocol.command import Command, CommandDecoder, Serializer
from ariane.protocol.message import BatchEntry, encode_batch
from ariane.topics import TIMER_TOPIC
from tests.unit.broker.rig import Peer, Rig, pull_fields, send_fields

TOPICS = {"T": 6, "Other": 6, "ReadOnly": 4, "%RETRY%g": 6, TIMER_TOPIC: 6}
TYPED_TOPICS = {"OnlyNormal": "NORMAL", "OnlyDelayed": "DELAY", "ByPriority": "PRIORITY"}
SMALL = StoreConfig(
    segment_bytes=8192,
    queue_file_bytes=20 * 40,
    index_slot_count=7,
    index_entry_count=50,
    filter_scan_bytes_max=20 * 4,  # four entries: what tags leave out ends a pull early
)
SYNC = StoreConfig(
    segment_bytes=8192,
    queue_file_bytes=20 * 40,
    index_slot_count=7,
    index_entry_count=50,
    flush_mode="SYNC_FLUSH",
)


class RawPeer(Peer):
    """A connection that keeps the bytes it is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.raw = bytearray()
        self.on_answer: Callable[[], None] | None = None

    def send_bytes(self, data: bytes) -> None:
        self.raw += data
        if self.on_answer is not None:
            self.on_answer()

    def stall(self) -> None:
        """Take nothing more, for a moment."""
        self.is_congested = True

    go_on_soon = stall

    def answers(self) -> list[bytes]:
        """Whole frames, sorted: answers may come in any order."""
        found = []
        position = 0
        while position < len(self.raw):
            (size,) = struct.unpack_from(">i", self.raw, position)
            found.append(bytes(self.raw[position : position + 4 + size]))
            position += 4 + size
        return sorted(found)


@dataclass
class Twin:
    """One of the two brokers."""

    store_config: StoreConfig
    reads_per_round: int = 0  # 0: no rounds, every read ends by itself
    stalls: bool = False  # after each answer the peer has to catch up
    checks_types: bool = False
    peer: RawPeer = field(default_factory=RawPeer)

    def __post_init__(self) -> None:
        config = BrokerConfig(checks_message_types=self.checks_types)
        self.rig = Rig(config, self.store_config)
        for name, permission in TOPICS.items():
            self.rig.topic(name, queues=2, permission=permission)
        for name, kind in TYPED_TOPICS.items():
            self.rig.topic(name, queues=2, attributes={"message.type": kind})
        self.rig.subscribe("members", "T", "TagA", version=5)
        sql = "color IS NULL AND TAGS = 'TagA'"
        self.rig.subscribe("picky", "T", sql, version=5, expression_type="SQL92")
        self.ends: list[Callable[[], None]] = []
        self.peer.after_round = self.ends.append if self.reads_per_round else None
        if self.stalls:
            self.peer.on_answer = self.peer.stall
        self.reader = self.rig.state.lane.reader_of(self.peer)  # type: ignore[arg-type]

    def by_lane(self, data: bytes, piece_bytes: int) -> None:
        for number, first in enumerate(range(0, len(data), piece_bytes), 1):
            piece = data[first : first + piece_bytes]
            self.reader.get_buffer(-1)[: len(piece)] = piece
            commands = self.reader.received(len(piece))
            while commands or self.peer.is_congested:
                self.peer.is_congested = False
                self.by_handlers(commands)
                commands = self.reader.received(0)
            if self.reads_per_round and number % self.reads_per_round == 0:
                self.end_round()
        self.end_round()

    def end_round(self) -> None:
        while self.ends:
            self.ends.pop()()

    def by_handlers(self, commands: list[Command]) -> None:
        for command in commands:
            answer = dispatch(self.rig.state, self.peer, command)  # type: ignore[arg-type]
            if answer is not None and not command.is_one_way:
                self.peer.send(answer)

    def files(self) -> dict[str, bytes]:
        """Everything on the disk."""
        found, directories = {}, [""]
        while directories:
            directory = directories.pop()
            prefix = f"{directory}/" if directory else ""
            directories += [prefix + name for name in self.rig.disk.directories(directory)]
            for name, _ in self.rig.disk.names(directory):
                found[prefix + name] = self.rig.disk.read(prefix + name)
        return found


texts = st.text(st.characters(codec="utf-8"), max_size=12)
words = st.text("abcXYZ019", min_size=1, max_size=8)
property_names = st.sampled_from(
    [
        "TAGS",
        "KEYS",
        "UNIQ_KEY",
        "WAIT",
        "color",
        "DELAY",
        "TRACE_ON",
        "CLUSTER",
        "TAG",
        "",
        "WAI",
        "_SYS_MSG_PRIORITY_",
        "__SHARDINGKEY",
    ]
)
property_values = st.one_of(
    words, st.sampled_from(["true", "false", "TRUE", "TagA", "k1 k2"]), texts
)


@st.composite
def properties(draw: st.DrawFn) -> str:
    plain = f"UNIQ_KEY\x01{draw(words)}\x02TAGS\x01{draw(st.sampled_from(['TagA', 'TagB']))}\x02"
    odd = "".join(
        f"{name}\x01{value}\x02"
        for name, value in draw(st.lists(st.tuples(property_names, property_values), max_size=3))
    )
    return draw(st.sampled_from([plain, plain, plain + odd, odd, plain.removesuffix("\x02")]))


START_MS = ManualClock().wall_ms()
DELAY_MS_MAX = 259_200_000  # timerMaxDelaySec
LEVELS = ["1", "2", "17", "18", "19", "0", "-1", "+1", "007", " 3", "3 ", "x", "9" * 30, "٣"]
TIMES = [
    "1",
    "999",
    "1000",
    "1001",
    "0",
    "-1",
    "+5",
    "005",
    " 5",
    "x",
    "9" * 15,
    "9" * 16,
    "9" * 40,
]
WISHES = [
    *(("DELAY", text) for text in LEVELS),
    *(("TIMER_DELAY_MS", text) for text in (*TIMES, str(DELAY_MS_MAX), str(DELAY_MS_MAX + 1))),
    *(("TIMER_DELAY_SEC", text) for text in (*TIMES, "259200", "259201")),
    *(("TIMER_DELIVER_MS", text) for text in TIMES),
    *(
        ("TIMER_DELIVER_MS", str(START_MS + later_ms))
        for later_ms in (-1, 0, 1, 2, 999, 1000, 1001, 2000, DELAY_MS_MAX, DELAY_MS_MAX + 1)
    ),
    ("TIMER_OUT_MS", "5"), ("TIMER_DEL_UNIQKEY", "K"), ("TIMER_", "5"), ("TIMER_x", "5"),
    ("REAL_TOPIC", "Other"), ("REAL_QID", "1"),
]  # fmt: skip
wishes = st.sampled_from(WISHES)


@st.composite
def late_properties(draw: st.DrawFn) -> str:
    """Of messages that ask to come later, most of them plainly."""
    plain = (
        f"TAGS\x01TagA\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01{draw(words | st.text('a ', min_size=1))}"
    )
    asked = draw(st.lists(wishes, min_size=1, max_size=draw(st.sampled_from([1, 1, 1, 3]))))
    end = draw(st.sampled_from(["\x02", "\x02", ""]))
    return "\x02".join([plain, *(f"{name}\x01{value}" for name, value in asked)]) + end


Asked = tuple[int, dict[str, Any], bytes]  # code, fields, body
odd_numbers = st.sampled_from([-1, 0, 1, 2, 7, "", "x", "1 ", "007", 1 << 33])


@st.composite
def sends(draw: st.DrawFn) -> Asked:
    fields = send_fields(
        topic=draw(st.sampled_from(["T", "T", "T", *TOPICS, *TYPED_TOPICS, "New", "bad topic"])),
        queue_id=draw(st.integers(0, 1)),
        properties=draw(st.one_of(properties(), late_properties())),
        system_flag=draw(st.sampled_from([0, 0, 0, 1, 0x10, 4, 0x301])),
        reconsume_times=draw(st.integers(0, 2)),
    )
    if draw(st.integers(0, 9)) == 0:
        fields[draw(st.sampled_from("abcdefghijklmn"))] = draw(odd_numbers)
    if draw(st.integers(0, 19)) == 0:
        del fields[draw(st.sampled_from("abcdefghi"))]
    body = draw(st.binary(max_size=60))
    if draw(st.booleans()):
        return RequestCode.SEND_MESSAGE_V2, fields, body
    return RequestCode.SEND_MESSAGE, long_names(fields), body


@st.composite
def plain_sends(draw: st.DrawFn) -> Asked:
    text = f"UNIQ_KEY\x01K\x02TAGS\x01{draw(st.sampled_from(['TagA', 'TagB']))}\x02"
    fields = send_fields(queue_id=draw(st.integers(0, 1)), properties=text)
    return RequestCode.SEND_MESSAGE_V2, fields, b"hello"


@st.composite
def batches(draw: st.DrawFn) -> Asked:
    entries = draw(
        st.lists(
            st.builds(
                BatchEntry,
                body=st.binary(min_size=1, max_size=30),
                properties=properties(),
                flag=st.integers(0, 3),
            ),
            min_size=1,
            max_size=4,
        )
    )
    body = bytearray(encode_batch(entries))
    if draw(st.integers(0, 5)) == 0:
        body[draw(st.integers(0, len(body) - 1))] ^= 1 << draw(st.integers(0, 7))
    fields = send_fields(is_batch=draw(st.sampled_from([True, True, False])))
    return RequestCode.SEND_BATCH_MESSAGE, fields, bytes(body)


@st.composite
def alike_batches(draw: st.DrawFn) -> Asked:
    """Batches whose messages are one text, here and there with another letter."""
    text = draw(
        st.sampled_from(
            [
                "KEYS\x01order1\x02UNIQ_KEY\x017F00000101\x02WAIT\x01true\x02TAGS\x01TagA\x02",
                "UNIQ_KEY\x017F00000101\x02TAGS\x01TagA\x02color\x01red\x02KEYS\x01a bc d",
                "TAGS\x01\x02KEYS\x01k1 k2\x02\x01x\x02UNIQ_KEY\x017F00000101\x02DELAX\x013\x02",
                "K\x01" + "v" * 250 + "\x02",
                "K\x01" + "v" * 252 + "\x02",
            ]
        )
    )
    letters = st.sampled_from("\x00\x01\x02\x03 aEYsf\x7fé")
    entries = []
    for _ in range(draw(st.integers(2, 6))):
        other = list(text)
        for _ in range(draw(st.integers(0, 2))):
            other[draw(st.integers(0, len(text) - 1))] = draw(letters)
        entries.append(BatchEntry(body=b"hello", properties="".join(other), flag=0))
    return RequestCode.SEND_BATCH_MESSAGE, send_fields(is_batch=True), encode_batch(entries)


@st.composite
def pulls(draw: st.DrawFn) -> Asked:
    own = draw(st.booleans())
    fields = pull_fields(
        draw(st.sampled_from(["T", "T", "Other", "Missing"])),
        draw(st.integers(0, 2)),
        draw(st.integers(0, 12)),
        consumerGroup="readers" if own else draw(st.sampled_from(["members", "picky"])),
        sysFlag=draw(st.sampled_from([0, 1])) | (4 if own else 0),
        subscription=draw(st.sampled_from(["*", "TagA", "TagA || TagB", "TAGS = 'TagA'"])),
        expressionType=draw(st.sampled_from(["TAG", "TAG", "", "SQL92"])),
        subVersion=draw(st.sampled_from([0, 5, 6])),
        commitOffset=draw(st.integers(-1, 9)),
        maxMsgNums=draw(st.sampled_from([1, 2, 32, 900, 2**31 - 1])),
    )
    return RequestCode.PULL_MESSAGE, fields, b""


LONG_NAMES = {
    "a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums",
    "e": "queueId", "f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties",
    "j": "reconsumeTimes", "k": "unitMode", "l": "maxReconsumeTimes", "m": "batch", "n": "bname",
}  # fmt: skip


def long_names(fields: dict[str, Any]) -> dict[str, Any]:
    return {LONG_NAMES[letter]: value for letter, value in fields.items()}


@st.composite
def asked_as(draw: st.DrawFn, opaque: int, asked: Asked) -> Command:
    """The request as one client or another writes it."""
    code, fields, body = asked
    return Command(
        code,
        opaque=opaque,
        flag=draw(st.sampled_from([0, 0, 0, 2])),
        ext={name: str(value) for name, value in fields.items()},
        body=body,
        serializer=draw(st.sampled_from([Serializer.JSON, Serializer.JSON, Serializer.ROCKETMQ])),
    )


@st.composite
def streams(draw: st.DrawFn) -> list[Command]:
    """Requests as a client might pipeline them."""
    requests = draw(st.lists(st.one_of(sends(), sends(), batches(), pulls()), max_size=30))
    return [draw(asked_as(number, asked)) for number, asked in enumerate(requests)]


def check_equal(hot: Twin, cold: Twin) -> None:
    for twin in (hot, cold):
        twin.rig.state.store.checkpoint()  # what queues and index keep back is in their files then
        twin.rig.clock.advance(0.01)
    assert hot.peer.answers() == cold.peer.answers()
    assert hot.files() == cold.files()
    for topic, group in (
        *(("T", "members"), ("T", "picky")),
        *(("T", "readers"), ("Other", "readers")),
    ):
        for table in ("offsets_of", "pulled_of"):
            hot_offsets = getattr(hot.rig.state.offsets, table)(topic, group)
            assert hot_offsets == getattr(cold.rig.state.offsets, table)(topic, group)
    assert counts(hot) == counts(cold)


def counts(twin: Twin) -> dict[str, tuple[int, int]]:
    stats = twin.rig.state.stats
    stats.put_total()  # brings in what the lane counted
    return {
        key: (tally.messages, tally.bytes)
        for key, tally in (stats.put | stats.got).items()
        if tally.messages
    }


@settings(max_examples=150)
@given(streams(), st.integers(1, 3000), st.integers(0, 4), st.booleans(), st.booleans())
def test_lane_and_handlers_are_one(
    commands: list[Command],
    piece_bytes: int,
    reads_per_round: int,
    stalls: bool,
    checks_types: bool,
) -> None:
    hot = Twin(SMALL, reads_per_round, stalls, checks_types)
    cold = Twin(SMALL, checks_types=checks_types)
    hot.by_lane(b"".join(command.encode() for command in commands), piece_bytes)
    # The twin gets what a decoder makes of the same bytes, not the commands they were made from.
    cold.by_handlers([read_back(command) for command in commands])
    check_equal(hot, cold)


@settings(max_examples=75)
@given(streams())
def test_lane_and_handlers_are_one_with_synchronous_flush(commands: list[Command]) -> None:
    """Frame by frame, since the lane asks for a flush when the bytes of a read are used up."""
    hot, cold = Twin(SYNC), Twin(SYNC)
    for command in commands:
        hot.by_lane(command.encode(), 1 << 16)
        cold.by_handlers([read_back(command)])
    check_equal(hot, cold)


KNOWN_PULLS: list[dict[str, Any]] = [
    {},
    {"subscription": "TagA"},
    {"consumerGroup": "members", "sysFlag": 0, "subVersion": 5},
]
ODD_PULLS: list[dict[str, Any]] = [
    {"expressionType": "SQL92", "subscription": "TagA"},
    {"consumerGroup": "members", "sysFlag": 0, "subVersion": 6},
    {"consumerGroup": "picky", "sysFlag": 0, "subVersion": 5},
    {"consumerGroup": "newcomers"},
]


@st.composite
def waiting_pulls(draw: st.DrawFn, ends: list[int]) -> Asked:
    """Pulls near the ends of two queues, that are held where they find nothing."""
    queue_id = draw(st.integers(0, 1))
    fields = pull_fields(
        "T",
        queue_id,
        max(ends[queue_id] + draw(st.sampled_from([0, 0, 0, -1, 1])), 0),
        suspendTimeoutMillis=draw(st.sampled_from([1000, 15_000])),
        commitOffset=draw(st.integers(-1, 9)),
        maxMsgNums=draw(st.sampled_from([1, 32])),
        **draw(st.sampled_from([*KNOWN_PULLS, *KNOWN_PULLS, *ODD_PULLS])),
    )
    fields["sysFlag"] |= PullFlag.SUSPEND | draw(st.sampled_from([0, PullFlag.COMMIT_OFFSET]))
    return RequestCode.PULL_MESSAGE, fields, b""


def first_steps(queue_id: int) -> list[Command]:
    """After these the lane knows the queue and who pulls from it."""
    text = "UNIQ_KEY\x01K\x02TAGS\x01TagA\x02"
    sent = send_fields(queue_id=queue_id, properties=text)
    send = Command(
        RequestCode.SEND_MESSAGE_V2,
        ext={name: str(value) for name, value in sent.items()},
        body=b"x",
    )
    pulls = [
        Command(
            RequestCode.PULL_MESSAGE,
            ext={
                name: str(value) for name, value in pull_fields("T", queue_id, 0, **known).items()
            },
        )
        for known in KNOWN_PULLS
    ]
    return [send, *pulls, send]


@settings(max_examples=150)
@given(st.data(), st.sampled_from([SMALL, SYNC]))
def test_pulls_that_waited_are_answered_alike(data: st.DataObject, config: StoreConfig) -> None:
    hot, cold = Twin(config), Twin(config)
    cold.rig.state.lane.shortcut_of = lambda *_: lambda _first: None  # type: ignore[method-assign]
    commands = [command for queue_id in (0, 1) for command in first_steps(queue_id)]
    for number in range(data.draw(st.integers(len(commands), 40))):
        ends = [cold.rig.state.store.max_offset("T", queue_id) for queue_id in (0, 1)]
        if number < len(commands):
            command = commands[number]
        else:
            kinds = st.one_of(plain_sends(), plain_sends(), sends(), waiting_pulls(ends))
            command = data.draw(asked_as(number, data.draw(kinds)))
        hot.by_lane(command.encode(), 1 << 16)
        cold.by_handlers([read_back(command)])
        pause_s = data.draw(st.sampled_from([0, 0, 0, 0.2, 1.0]))
        for twin in (hot, cold):
            twin.rig.clock.advance(pause_s)
        assert len(hot.rig.state.held) == len(cold.rig.state.held)
    check_equal(hot, cold)


def test_a_pull_that_waited_is_answered_by_the_lane() -> None:
    twin = Twin(SMALL)
    send = plain_send(b"hello")
    twin.by_lane(send + plain_pull() + send, 4096)  # a new group makes every check be made again
    for offset in (2, 3):
        twin.by_lane(plain_pull(offset, sysFlag=6, suspendTimeoutMillis=15_000), 4096)
        answered = len(twin.peer.answers())
        assert len(twin.rig.state.held) == 1
        twin.by_lane(send, 4096)
        assert len(twin.peer.answers()) == answered + 2, "before the loop's next turn"
        assert len(twin.rig.state.held) == 0


def test_a_pull_at_the_end_of_its_queue_is_held_without_a_handler() -> None:
    twin = Twin(SMALL)
    send = plain_send(b"hello")
    twin.by_lane(send + plain_pull() + send + plain_pull(), 4096)
    before = twin.rig.state.lane.request_count
    waiting = plain_pull(2, sysFlag=6, suspendTimeoutMillis=1000)
    twin.by_lane(waiting, 4096)
    assert twin.rig.state.lane.request_count == before + 1
    assert len(twin.rig.state.held) == 1
    answered = len(twin.peer.answers())
    twin.rig.clock.advance(1.1)  # its time is up: now a handler reads it
    assert len(twin.rig.state.held) == 0
    assert len(twin.peer.answers()) == answered + 1


@st.composite
def late_streams(draw: st.DrawFn) -> list[Command]:
    """Sends to one topic that ask to come later, many more than a queue file or a slot holds."""
    asked = draw(st.lists(st.one_of(late_properties(), properties()), min_size=1, max_size=6))
    fields = [
        send_fields(queue_id=number % 2, properties=text) for number, text in enumerate(asked)
    ]
    return [
        Command(
            RequestCode.SEND_MESSAGE_V2,
            opaque=number,
            ext={name: str(value) for name, value in fields[number % len(fields)].items()},
            body=b"x" * (number % 7 + 1),
        )
        for number in range(draw(st.integers(1, 150)))
    ]


@settings(max_examples=40)
@given(late_streams(), st.sampled_from([SMALL, SYNC]), st.data())
def test_lane_and_handlers_set_the_same_aside(
    commands: list[Command], store_config: StoreConfig, data: st.DataObject
) -> None:
    """The clock goes on between them, so that waiting messages are taken in and delivered."""
    config = replace(
        store_config,
        timer_slot_messages_max=data.draw(st.sampled_from([20, 40, 2**31 - 1])),
    )
    hot, cold = Twin(config), Twin(config)
    for twin in (hot, cold):
        twin.rig.state.timer.start(twin.rig.timers)
        twin.rig.state.schedule.start(twin.rig.timers)
    for first in range(0, len(commands), 40):
        for command in commands[first : first + 40]:
            hot.by_lane(command.encode(), 1 << 16)
            cold.by_handlers([read_back(command)])
        pause_s = data.draw(st.sampled_from([0.001, 0.02, 0.5, 3.0]))
        for twin in (hot, cold):
            twin.rig.clock.advance(pause_s)
    check_equal(hot, cold)


def read_back(command: Command) -> Command:
    (found,) = CommandDecoder().feed(command.encode())
    return found


def plain_send(body: bytes, topic: str = "T") -> bytes:
    ext = {name: str(value) for name, value in send_fields(topic=topic).items()}
    return Command(RequestCode.SEND_MESSAGE_V2, ext=ext, body=body).encode()


def plain_pull(offset: int = 0, **fields: object) -> bytes:
    ext = {name: str(value) for name, value in pull_fields("T", 0, offset, **fields).items()}
    return Command(RequestCode.PULL_MESSAGE, ext=ext).encode()


def test_no_peer_sets_how_much_one_pull_may_scan() -> None:
    """Ten of another tag between two that match: a pull ends where the settings say."""
    rest = "KEYS\x01k\x02UNIQ_KEY\x01K\x02"
    tags = ["TagA", "TagA", *["TagB"] * 10, "TagA"]
    sends = [
        Command(
            RequestCode.SEND_MESSAGE_V2,
            opaque=number,
            ext={
                name: str(value)
                for name, value in send_fields(properties=f"{rest}TAGS\x01{tag}\x02").items()
            },
            body=b"x",
        ).encode()
        for number, tag in enumerate(tags)
    ]
    pull = plain_pull(0, subscription="TagA", maxMsgNums=900)
    twin = Twin(SMALL)
    twin.by_lane(b"".join(sends) + pull + pull, 1 << 16)
    assert twin.rig.state.lane.request_count > len(sends) - 2
    found = [frame for frame in twin.peer.answers() if b"nextBeginOffset" in frame]
    assert len(found) == 2
    assert found[0] == found[1], "by the handler, then by the lane"
    assert b'"nextBeginOffset":"4"' in found[0]


def test_plain_requests_do_take_the_lane() -> None:
    twin = Twin(SMALL)
    send = plain_send(b"hello")
    pull = plain_pull()
    twin.by_lane(send, 4096)
    assert twin.rig.state.lane.request_count == 0, "the first send opens the topic"
    twin.by_lane(send * 3, 4096)
    assert twin.rig.state.lane.request_count == 3
    twin.by_lane(pull, 4096)
    assert twin.rig.state.lane.request_count == 3, "the first pull is granted"
    twin.by_lane(pull * 2, 4096)
    assert twin.rig.state.lane.request_count == 5
    twin.rig.topic("T", queues=3)
    twin.by_lane(send, 4096)
    assert twin.rig.state.lane.request_count == 5, "a change makes every check be made again"


def test_a_change_closes_what_it_is_about() -> None:
    twin = Twin(replace(SMALL, segment_bytes=1 << 20, index_entry_count=5000))
    topics = [f"Many{number}" for number in range(100)]  # some of them collide in the lane's table
    for topic in topics:
        twin.rig.topic(topic, queues=1)
    sends = {topic: plain_send(b"x", topic=topic) for topic in topics}
    for topic in topics:
        twin.by_lane(sends[topic], 4096)

    def by_lane(topic: str) -> int:
        before = twin.rig.state.lane.request_count
        twin.by_lane(sends[topic], 4096)
        return twin.rig.state.lane.request_count - before

    assert [by_lane(topic) for topic in topics] == [1] * 100
    for changed in topics[::7]:
        twin.rig.topic(changed, queues=1, permission=4)
    assert [by_lane(topic) for topic in topics] == [
        0 if number % 7 == 0 else 1 for number in range(100)
    ]
    assert twin.peer.raw.count(b'"code":16') == 15
    for changed in topics[::7]:
        twin.rig.topic(changed, queues=1)
        assert (by_lane(changed), by_lane(changed)) == (0, 1)
    twin.rig.subscribe("latecomers", topics[0], "*", version=1)
    assert [by_lane(topic) for topic in topics] == [1] * 100, "consumers do not concern sends"


def test_what_is_kept_back_is_in_the_file_when_asked_for_or_a_second_later() -> None:
    twin = Twin(SMALL)
    send = plain_send(b"hello")
    store = twin.rig.state.store

    def entries_in_file() -> int:
        data = twin.files()["consumequeue/T/0/00000000000000000000"]
        return sum(any(data[at : at + 20]) for at in range(0, len(data), 20))

    store.tick()
    twin.by_lane(send * 4, 4096)
    assert entries_in_file() == 1, "the first opened the topic"
    assert store.max_offset("T", 0) == 4
    assert entries_in_file() == 4
    twin.by_lane(send, 4096)
    assert entries_in_file() == 4
    twin.rig.clock.advance(1.0)
    store.tick()
    assert entries_in_file() == 5
    twin.by_lane(send * 32, 1 << 16)
    assert entries_in_file() == 5
    twin.by_lane(send, 4096)
    assert entries_in_file() == 37, "no more than thirty-two are kept"


@pytest.mark.parametrize("topic", ["T", "OnlyDelayed", "OnlyNormal", TIMER_TOPIC])
@pytest.mark.parametrize(
    "store_config", [SMALL, SYNC, replace(SMALL, timer_enabled=False)], ids=["async", "sync", "off"]
)
def test_every_wish_is_met_alike(topic: str, store_config: StoreConfig) -> None:
    alone = [f"{name}\x01{value}\x02" for name, value in WISHES]
    pairs = [first + second for first in alone[::5] for second in alone[::7]]
    asked = ["", *alone, *pairs, alone[0].removesuffix("\x02")]
    asked += [f"{alone[0]}x\x01{'y' * size}\x02" for size in (32_500, 32_600, 32_650, 32_700)]
    texts = [f"UNIQ_KEY\x01{'K' * (1 + number % 3)}\x02{text}" for number, text in enumerate(asked)]
    # Handles of every length, up to those that only the handlers write.
    texts += [
        f"TIMER_DELAY_SEC\x015\x02UNIQ_KEY\x01{'K' * size}\x02" for size in range(700, 800, 7)
    ]
    hot, cold = Twin(store_config), Twin(store_config)
    for number, text in enumerate(texts):
        fields = send_fields(topic=topic, properties=f"TAGS\x01a\x02{text}")
        command = Command(
            RequestCode.SEND_MESSAGE_V2,
            opaque=number,
            ext={name: str(value) for name, value in fields.items()},
            body=b"hello",
        )
        hot.by_lane(command.encode(), 1 << 16)
        cold.by_handlers([read_back(command)])
    check_equal(hot, cold)


def test_a_slot_is_full_alike() -> None:
    config = replace(SMALL, timer_slot_messages_max=3)
    hot, cold = Twin(config), Twin(config)
    for twin in (hot, cold):
        twin.rig.state.timer.start(twin.rig.timers)
    for number in range(6):
        wish = f"TIMER_DELIVER_MS\x01{START_MS + 5000}\x02"
        fields = send_fields(properties=f"UNIQ_KEY\x01K{number}\x02{wish}")
        command = Command(
            RequestCode.SEND_MESSAGE_V2,
            opaque=number,
            ext={name: str(value) for name, value in fields.items()},
            body=b"hello",
        )
        hot.by_lane(command.encode(), 1 << 16)
        cold.by_handlers([read_back(command)])
        for twin in (hot, cold):
            twin.rig.clock.advance(0.02)  # the wheel takes it in
    assert b"under flow control" in cold.peer.raw
    check_equal(hot, cold)


def test_plain_wishes_to_come_later_do_take_the_lane() -> None:
    plain = ["DELAY\x011", "DELAY\x0118", "TIMER_DELAY_SEC\x0110", "TIMER_DELAY_MS\x011500"]
    odd = [
        "DELAY\x0119",
        "DELAY\x0101",
        "DELAY\x011\x02TIMER_DELAY_SEC\x011",
        "TIMER_DELIVER_MS\x015",
    ]
    for text, takes in [*((text, True) for text in plain), *((text, False) for text in odd)]:
        twin = Twin(SMALL)
        fields = send_fields(properties=f"UNIQ_KEY\x01K1\x02{text}\x02")
        send = Command(
            RequestCode.SEND_MESSAGE_V2,
            ext={name: str(value) for name, value in fields.items()},
            body=b"hello",
        ).encode()
        twin.by_lane(send * 4, 4096)
        assert twin.rig.state.lane.request_count == (3 if takes else 0), text


def test_a_reader_closed_by_its_own_answer_carries_out_no_more() -> None:
    twin = Twin(SMALL)
    send = plain_send(b"x" * 4000)
    pull = plain_pull()
    twin.by_lane(send * 3 + pull * 2, 1 << 16)
    answered = twin.rig.state.lane.request_count
    twin.peer.on_answer = twin.reader.close
    twin.by_lane(pull[:100], 100)  # now the reader has a buffer of its own, which it gives back
    twin.by_lane(pull[100:] + pull * 5, 1 << 16)
    assert twin.rig.state.lane.request_count == answered + 1


@settings(max_examples=300)
@given(st.lists(alike_batches(), min_size=1, max_size=6), st.data())
def test_messages_of_one_shape_are_read_alike(asked: list[Asked], data: st.DataObject) -> None:
    opening = (RequestCode.SEND_MESSAGE_V2, send_fields(properties="UNIQ_KEY\x01K\x02"), b"x")
    commands = [data.draw(asked_as(number, each)) for number, each in enumerate([opening, *asked])]
    hot, cold = Twin(SMALL), Twin(SMALL)
    hot.by_lane(b"".join(command.encode() for command in commands), 1 << 16)
    cold.by_handlers([read_back(command) for command in commands])
    check_equal(hot, cold)


@settings(max_examples=300)
@given(st.binary(max_size=200), st.integers(1, 64))
def test_any_bytes_are_refused_or_answered(data: bytes, piece: int) -> None:
    twin = Twin(SMALL)
    try:
        twin.by_lane(data, piece)
    except ProtocolError:
        return
    assert twin.reader.partial_bytes <= len(data)


@settings(max_examples=200)
@given(streams().filter(bool), st.data())
def test_a_flipped_bit_makes_no_difference_between_them(
    commands: list[Command], data: st.DataObject
) -> None:
    """A damaged header is read alike, or refused alike, by the lane and by the full decoder."""
    frames = [bytearray(command.encode()) for command in commands]
    hot, cold = Twin(SMALL), Twin(SMALL)
    frame = frames[-1]
    frame[data.draw(st.integers(8, len(frame) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    for wire in frames:
        refused = []
        try:
            hot.by_lane(bytes(wire), 4096)
        except ProtocolError:
            refused.append("hot")
        try:
            cold.by_handlers(CommandDecoder().feed(bytes(wire)))
        except ProtocolError:
            refused.append("cold")
        assert refused in ([], ["hot", "cold"])
    check_equal(hot, cold)


def test_pulls_by_expression_do_not_take_the_lane() -> None:
    sends = [
        Command(
            RequestCode.SEND_MESSAGE_V2,
            opaque=number,
            ext={name: str(value) for name, value in send_fields(properties=text).items()},
            body=b"x",
        )
        for number, text in enumerate(
            f"UNIQ_KEY\x01K\x02TAGS\x01{tag}\x02{extra}"
            for tag in ("TagA", "TagB")
            for extra in ("", "color\x01red\x02")
        )
    ]
    for group, flags, kind in (("picky", 0, "SQL92"), ("picky", 0, ""), ("readers", 4, "SQL92")):
        hot, cold = Twin(SMALL), Twin(SMALL)
        fields = pull_fields(
            "T", 0, 0, consumerGroup=group, sysFlag=flags, expressionType=kind,
            subscription="color IS NULL AND TAGS = 'TagA'",
        )  # fmt: skip
        pull = Command(
            RequestCode.PULL_MESSAGE, ext={name: str(value) for name, value in fields.items()}
        )
        commands = [*sends, pull, pull, pull]
        hot.by_lane(b"".join(command.encode() for command in commands), 4096)
        cold.by_handlers([read_back(command) for command in commands])
        check_equal(hot, cold)
        assert hot.rig.state.stats.got["T@" + group].messages == 3
