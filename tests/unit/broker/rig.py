"""A broker without sockets: real tables, a real store on a simulated disk, a clock that is told.

Requests go in through `dispatch`, as a connection would give them, and what comes back, at once or
later, is found in `Peer.sent`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from ariane.broker.broker import assemble
from ariane.broker.clients import Client
from ariane.broker.dispatch import dispatch
from ariane.broker.persistence import Saver
from ariane.clock import ManualClock, Timers
from ariane.codes import RequestCode
from ariane.config import BrokerConfig, StoreConfig
from ariane.disk import SimulatedDisk
from ariane.protocol.bodies import ConsumerData, SubscriptionData, TopicConfig
from ariane.protocol.command import Command, CommandDecoder, Serializer
from ariane.protocol.message import StoredMessage, decode_records
from ariane.store import config_files
from ariane.store.store import Store

STORE_HOST = ("127.0.0.1", 10911)
TIMER_SLOTS = 1 << 13
SMALL_STORE = StoreConfig(
    segment_bytes=1 << 20,
    queue_file_bytes=20 * 1000,
    index_slot_count=100,
    index_entry_count=400,
    timer_log_file_bytes=1 << 16,
)


class TickingClock(ManualClock):
    """A clock that moves a little when it is read: what is due at once comes in the next turn."""

    def __init__(self) -> None:
        super().__init__()
        self._reads = 0

    def monotonic_s(self) -> float:
        self._reads += 1
        return super().monotonic_s() + self._reads * 1e-9

    def pass_by(self, seconds: float) -> None:
        """Let time pass without running anything that falls due."""
        self._elapsed_s += seconds


class Peer:
    """A connection that keeps what it is sent."""

    def __init__(self, peer: tuple[str, int] = ("127.0.0.1", 33632)) -> None:
        self.peer = peer
        self.local = STORE_HOST
        self.is_closed = False
        self.on_close: list[Callable[[Any], None]] = []
        self.on_drain: list[Callable[[Any], None]] = []
        self.is_congested = False
        self.sent: list[Command] = []
        self.unread_bytes = 0
        self.parked_bytes = 0
        self.close_if_ended = lambda: None
        self.after_round: Callable[[Callable[[], None]], None] | None = None
        self.channel = None  # frames are put before its decoder by hand
        self.go_on = self.fail = _nobody_reads

    def send(self, command: Command) -> None:
        self.send_bytes(command.encode())

    def send_bytes(self, data: bytes) -> None:
        if not self.is_closed:
            self.sent += CommandDecoder(header_bytes_max=8 << 20).feed(data)

    def write(self, frames: bytes) -> None:
        self.send_bytes(frames)

    def drain(self) -> None:
        """Take everything that was sent."""
        self.is_congested = False
        for callback in self.on_drain:
            callback(self)

    def close(self, reason: str = "") -> None:
        self.is_closed = True
        for callback in self.on_close:
            callback(self)


def _nobody_reads(_: object) -> None:
    raise AssertionError("a decoder without a channel does not read by itself")


class Rig:
    """One broker."""

    def __init__(
        self,
        config: BrokerConfig | None = None,
        store_config: StoreConfig = SMALL_STORE,
        disk: SimulatedDisk | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        self.clock = clock or ManualClock()
        self.timers = Timers(self.clock)
        self.clock.timers.append(self.timers)
        self.disk = disk or SimulatedDisk()
        self.state = assemble(
            config or BrokerConfig(),
            Store.open(
                store_config,
                self.disk,
                self.clock,
                store_host=STORE_HOST,
                timer_slots=TIMER_SLOTS,
            ),
            Saver(lambda path, data: config_files.persist(self.disk, path, data)),
            disk=self.disk,
            timers=self.timers,
            random=Random(7),
            address=STORE_HOST,
        )
        self.state.store.start()
        self.peer = Peer()
        self._opaque = 0

    def configure(self, **changes: Any) -> None:
        """Change the broker's settings while it runs."""
        self.state.config = msgspec.structs.replace(self.state.config, **changes)
        self.state.topics.config = self.state.groups.config = self.state.config

    def topic(self, name: str, queues: int = 4, permission: int = 6, **fields: Any) -> None:
        """Create or change a topic."""
        fields.setdefault("read_queue_count", queues)
        fields.setdefault("write_queue_count", queues)
        self.state.topics.put(TopicConfig(name=name, permission=permission, **fields))

    def subscribe(self, group: str, topic: str, expression: str = "*", **fields: Any) -> None:
        """Let a consumer of the group heartbeat with one subscription."""
        subscription = {
            name: fields.pop(name) for name in ("version", "expression_type") if name in fields
        }
        data = SubscriptionData(topic=topic, expression=expression, **subscription)
        consumer = ConsumerData(group=group, subscriptions=[data], **fields)
        client = Client(self.peer, "client@1", "JAVA", 479)  # type: ignore[arg-type]
        self.state.groups.for_consumer(group)
        self.state.clients.join(client, consumer)

    def call(
        self,
        code: int,
        ext: dict[str, Any] | None = None,
        body: bytes = b"",
        *,
        flag: int = 0,
        serializer: Serializer = Serializer.JSON,
        peer: Peer | None = None,
    ) -> Command | None:
        """Carry out a request; None when it is not answered (yet)."""
        self._opaque += 1
        fields = {name: str(value) for name, value in (ext or {}).items()}
        command = Command(
            code, opaque=self._opaque, flag=flag, ext=fields, body=body, serializer=serializer
        )
        connection = peer or self.peer
        return dispatch(self.state, connection, command)  # type: ignore[arg-type]

    def send(
        self,
        topic: str = "T",
        queue_id: int = 0,
        body: bytes = b"hello",
        properties: str = "UNIQ_KEY\x01K1\x02",
        **fields: Any,
    ) -> Command:
        """Send one message by SEND_MESSAGE_V2 and take the answer."""
        answer = self.call(
            RequestCode.SEND_MESSAGE_V2,
            send_fields(topic=topic, queue_id=queue_id, properties=properties, **fields),
            body,
        )
        assert answer is not None
        return answer

    def send_raw(self, body: bytes, properties: bytes, topic: str = "T") -> None:
        """Send a batch of one, whose properties cross the wire as bytes that nobody checks."""
        size = 20 + len(body) + 2 + len(properties)
        entry = struct.pack(">iiiii", size, 0, 0, 0, len(body)) + body
        entry += struct.pack(">h", len(properties)) + properties
        fields = send_fields(topic=topic, properties="", is_batch=True)
        answer = self.call(RequestCode.SEND_BATCH_MESSAGE, fields, entry)
        assert answer is not None and answer.code == 0, answer

    def pull(
        self, topic: str = "T", queue_id: int = 0, offset: int = 0, **fields: Any
    ) -> Command | None:
        """Pull with a subscription of its own (bit 2), not to be held."""
        return self.call(RequestCode.PULL_MESSAGE, pull_fields(topic, queue_id, offset, **fields))

    def stored(self, topic: str = "T", queue_id: int = 0) -> list[StoredMessage]:
        """Everything in a queue, as the store has it."""
        found = self.state.store.read(topic, queue_id, 0, count_max=1000, tag_codes=None)
        return decode_records(found.body)


def send_fields(
    *,
    topic: str = "T",
    queue_id: int = 0,
    properties: str = "UNIQ_KEY\x01K1\x02",
    system_flag: int = 0,
    reconsume_times: int = 0,
    is_batch: bool = False,
    default_topic: str = "TBW102",
) -> dict[str, Any]:
    """The header of SEND_MESSAGE_V2."""
    return {
        "a": "producers", "b": topic, "c": default_topic, "d": 4, "e": queue_id, "f": system_flag,
        "g": 1_700_000_000_123, "h": 0, "i": properties, "j": reconsume_times, "k": "false",
        "m": str(is_batch).lower(), "n": "broker-a",
    }  # fmt: skip


def pull_fields(topic: str, queue_id: int, offset: int, **fields: Any) -> dict[str, Any]:
    """The header of PULL_MESSAGE."""
    return {
        "consumerGroup": "readers", "topic": topic, "queueId": queue_id, "queueOffset": offset,
        "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 15_000,
        "subscription": "*", "subVersion": 0, "expressionType": "TAG",
    } | fields  # fmt: skip
