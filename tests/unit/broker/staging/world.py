"""A broker that rows are staged in and published from, killed at will, and what its queues hold."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from ariane.clock import ManualClock
from ariane.codes import RequestCode, ResponseCode
from ariane.config import BrokerConfig, StoreConfig
from ariane.disk import CrashMode, SimulatedDisk
from ariane.kernel.hashing import crc32
from ariane.protocol.bodies.staging import BatchPlan, ChunkReference
from ariane.protocol.command import Command
from ariane.protocol.message import BatchEntry, decode_records, encode_batch
from tests.unit.broker.rig import SMALL_STORE, Peer, Rig

BROKER = BrokerConfig().name
QUERY = "3a1c-query"


def batch_body(rows: list[str], *, properties: str = "", prefix: str = "") -> bytes:
    """Rows as a chunk's body; each has its own text as its unique key."""
    return encode_batch(
        BatchEntry(
            flag=0, body=row.encode(), properties=f"{properties}UNIQ_KEY\x01{prefix}{row}\x02"
        )
        for row in rows
    )


class StagingWorld:
    """One broker on a simulated disk."""

    def __init__(self, store_config: StoreConfig = SMALL_STORE, name: str = BROKER) -> None:
        self.store_config = store_config
        self.name = name
        self.clock = ManualClock()
        self.disk = SimulatedDisk()
        self.start()

    def start(self) -> None:
        """Start on the disk as it is."""
        self.clock.timers.clear()
        self.rig = Rig(
            BrokerConfig(name=self.name), self.store_config, disk=self.disk, clock=self.clock
        )
        self.rig.topic("T")
        self.state = self.rig.state
        self.state.staging.load(self.disk)
        self.state.staging.start(self.rig.timers)

    def kill(self, mode: CrashMode = CrashMode.KILL, seed: int = 0) -> None:
        """Kill the process, or the machine, and start again on what is left."""
        self.disk = self.disk.crash_image(Random(seed), mode)
        self.start()

    def stage(self, texts: list[str], *, queue_id: int = 0, **fields: Any) -> Command:
        """Stage a chunk and take the answer."""
        body = fields.pop("body", None) or batch_body(texts)
        ext = {
            "queryId": QUERY, "batchId": 0, "partition": 0, "attempt": 0, "sequence": 0,
            "topic": "T", "queueId": queue_id, "rows": len(texts), "crc32": crc32(body),
        } | fields  # fmt: skip
        answer = self.rig.call(RequestCode.STAGE_CHUNK, ext, body)
        assert answer is not None
        return answer

    def chunk(self, texts: list[str], **fields: Any) -> ChunkReference:
        """Stage a chunk; how a plan refers to it."""
        answer = self.stage(texts, **fields)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        body = fields.get("body") or batch_body(texts)
        return ChunkReference(int(answer.ext["chunkOffset"]), len(texts), crc32(body))

    def ask_to_publish(
        self, chunks: list[ChunkReference], *, batch: int = 0, query: str = QUERY, **fields: Any
    ) -> Peer:
        """Ask for a batch to be published; the peer that will hear of it."""
        peer = Peer()
        plan = fields.pop("plan", None) or BatchPlan({self.name: chunks})
        ext = {"queryId": query, "batchId": batch} | fields
        answer = self.rig.call(RequestCode.PUBLISH_BATCH, ext, msgspec.json.encode(plan), peer=peer)
        if answer is not None:
            peer.send(answer)
        return peer

    def publish(self, chunks: list[ChunkReference], **fields: Any) -> Command:
        """Publish a batch and take the answer."""
        peer = self.ask_to_publish(chunks, **fields)
        self.clock.advance(1)
        (answer,) = peer.sent
        return answer

    def call(self, code: RequestCode, **fields: Any) -> Command:
        """DISCARD_BATCH or PUBLISHED_BATCH."""
        ext = {"queryId": QUERY, "batchId": 0} | fields
        answer = self.rig.call(code, ext)
        if answer is None:
            self.clock.advance(1)
            answer = self.rig.peer.sent.pop()
        return answer

    def rows(self, queue_id: int = 0, topic: str = "T") -> list[str]:
        """The bodies in a queue."""
        found: list[str] = []
        while True:
            part = self.rig.state.store.read(topic, queue_id, len(found), count_max=1000)
            if not part.message_count:
                return found
            found += [message.body.decode() for message in decode_records(part.body)]
