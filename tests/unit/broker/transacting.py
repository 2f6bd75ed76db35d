"""A broker without sockets whose producers begin and end transactions, and that may be killed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from ariane.broker.clients import Client
from ariane.clock import ManualClock
from ariane.codes import RequestCode, ResponseCode
from ariane.config import BrokerConfig, StoreConfig
from ariane.disk import CrashMode, SimulatedDisk
from ariane.protocol.command import Command
from ariane.protocol.message import StoredMessage, decode_offset_id, decode_records
from ariane.topics import HALF_TOPIC, OPERATION_TOPIC, TRANSACTION_GROUP
from tests.unit.broker.rig import SMALL_STORE, Peer, Rig

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
GROUP = "transfers"


@dataclass(frozen=True)
class Begun:
    """Where a producer was told that its half message lies."""

    log_offset: int
    queue_offset: int
    key: str


class Bank(Rig):
    """A broker with topic T that checks transactions by the clock."""

    def __init__(
        self,
        config: BrokerConfig | None = None,
        store_config: StoreConfig = SMALL_STORE,
        disk: SimulatedDisk | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        config = msgspec.structs.replace(config or BrokerConfig(), fast_failure=False)
        super().__init__(config, store_config, disk, clock)
        if self.state.topics.get("T") is None:
            self.topic("T")
        self.state.transactions.load()
        self.state.transactions.start()
        self.state.flow.stop()  # its beats would take most of a long wait
        self.timers.every(1.0, self.state.store.tick)
        self.timers.every(5.0, self.state.offsets.save)

    def stop(self) -> None:
        """End as a broker does that is asked to."""
        self.clock.timers.remove(self.timers)
        self.state.transactions.stop()
        self.state.offsets.save_now()
        self.state.store.stop()

    def restarted(self) -> Bank:
        """The broker after a clean stop."""
        self.stop()
        return Bank(self.state.config, self.state.store_config, self.disk, self.clock)

    def killed(self, mode: CrashMode = CrashMode.KILL, seed: int = 1) -> Bank:
        """The broker after a crash."""
        self.clock.timers.remove(self.timers)
        image = self.disk.crash_image(Random(seed), mode)
        return Bank(self.state.config, self.state.store_config, image, self.clock)

    def check_before_a_crash(self) -> None:
        """A round whose progress is not saved in time."""
        self.state.offsets.file.barrier = lambda job: None
        self.state.transactions.check()

    def producer(self, group: str = GROUP, port: int = 1000) -> Peer:
        """A producer of the group, connected."""
        peer = Peer(("127.0.0.1", port))
        client = Client(peer, f"producer@{port}", "JAVA", 479)  # type: ignore[arg-type]
        self.state.clients.produce(client, group)
        return peer

    def begin(self, key: str = "K", queue_id: int = 1, more: str = "", **fields: Any) -> Begun:
        """Send a half message."""
        fields.setdefault("body", f"body of {key}".encode())
        answer = self.send(
            queue_id=queue_id,
            properties=f"TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02UNIQ_KEY\x01{key}\x02{more}",
            system_flag=4,
            **fields,
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        _, log_offset = decode_offset_id(answer.ext["msgId"])
        return Begun(log_offset, int(answer.ext["queueOffset"]), key)

    def end(self, half: Begun, decision: int = COMMIT, **fields: Any) -> Command:
        """Decide about a half message, and ask for an answer."""
        answer = self.call(RequestCode.END_TRANSACTION, end_fields(half, decision, **fields))
        assert answer is not None
        return answer

    def stored(self, topic: str = "T", queue_id: int = 0) -> list[StoredMessage]:
        """Everything in a queue, however many reads that takes."""
        store, found = self.state.store, []
        while (at := len(found)) < store.max_offset(topic, queue_id):
            found += decode_records(store.read(topic, queue_id, at, count_max=1000).body)
        return found

    def delivered(self, queue_id: int = 1) -> list[str]:
        """The unique keys of what consumers of T can read."""
        return [each.properties["UNIQ_KEY"] for each in self.stored("T", queue_id)]

    def notes(self) -> list[str]:
        """What the operation queue holds."""
        return [note.body.decode() for note in self.stored(OPERATION_TOPIC)]

    def halves(self) -> list[StoredMessage]:
        """What the half queue holds."""
        return self.stored(HALF_TOPIC)

    def progress(self) -> tuple[int | None, int | None]:
        """Saved progress of the half and the operation queue."""
        offsets = self.state.offsets
        return (
            offsets.get(HALF_TOPIC, TRANSACTION_GROUP, 0),
            offsets.get(OPERATION_TOPIC, TRANSACTION_GROUP, 0),
        )


def end_fields(half: Begun, decision: int, **fields: Any) -> dict[str, Any]:
    """The header of END_TRANSACTION."""
    return {
        "producerGroup": GROUP, "tranStateTableOffset": half.queue_offset,
        "commitLogOffset": half.log_offset, "commitOrRollback": decision,
        "fromTransactionCheck": "false", "msgId": half.key, "transactionId": half.key,
    } | fields  # fmt: skip


def checks(peer: Peer) -> Iterator[tuple[Begun, StoredMessage]]:
    """What a producer is asked, and the message it is shown; each is taken once."""
    asked, peer.sent = peer.sent, []
    for command in asked:
        assert command.code == RequestCode.CHECK_TRANSACTION_STATE
        assert command.is_one_way
        ext = command.ext
        at = int(ext["commitLogOffset"]), int(ext["tranStateTableOffset"])
        yield Begun(*at, ext["msgId"]), decode_records(command.body)[0]
