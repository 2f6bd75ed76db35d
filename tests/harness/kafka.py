"""A single node of Apache Kafka 4 in KRaft mode, as a process, from the jars that `make` fetched.

It is no RocketMQ server, yet a `Server` in how it is started, waited for, stopped and measured; its
broker's address is what clients call the bootstrap server.
"""

import os
import socket
import struct
from pathlib import Path

from tests.harness.processes import ROOT, Server, ServerFailed, free_port, text_of

JARS = Path(os.environ.get("KAFKA_JARS", ROOT / ".cache/kafka/lib"))
QUICK_START = ["-Xms512m", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
# The flags of its own kafka-server-start.sh and kafka-run-class.sh.
AS_RECOMMENDED = [
    "-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15", "-Djava.awt.headless=true",
]  # fmt: skip
CLUSTER_ID = "ariane-peer-kafka-node"
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)  # version 0, request 1, from nobody


class Kafka(Server):
    """Broker and controller in one process; settings are those of server.properties."""

    def __init__(self, directory: Path, *, flags: list[str] | None = None) -> None:
        super().__init__(directory)
        self.flags = QUICK_START if flags is None else flags

    @property
    def bootstrap(self) -> str:
        """HOST:PORT that clients are given."""
        return self.broker_address

    def launch(self, settings: dict[str, object]) -> Path:
        if not any(JARS.glob("kafka_*.jar")):
            raise ServerFailed(f"no Kafka in {JARS}; `make kafka` fetches it")
        self.directory.mkdir(parents=True, exist_ok=True)
        controller = f"127.0.0.1:{free_port()}"
        self.broker = ("127.0.0.1", free_port())
        keys = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": self.store,
            "num.partitions": 4,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 4,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            **settings,
        }
        text = "".join(f"{key}={text_of(value)}\n" for key, value in keys.items())
        (self.directory / "server.properties").write_text(text)
        if not (self.store / "meta.properties").exists():
            self._format()
        return self.spawn("kafka", self._java(self.flags, "kafka.Kafka", "server.properties"))

    def _format(self) -> None:
        """Make the store one that a server will open."""
        words = ["format", "--cluster-id", CLUSTER_ID, "--config", "server.properties"]
        output = self.spawn("format", self._java(QUICK_START, "kafka.tools.StorageTool", *words))
        if self.processes.pop().wait(60):
            raise ServerFailed(f"kafka-storage format: {output.read_text(errors='replace')}")

    def _java(self, flags: list[str], main: str, *arguments: str) -> list[str]:
        return ["java", *flags, "-cp", f"{JARS}/*", main, *arguments]

    def is_ready(self, output: Path) -> bool:
        """Answers come only once it has joined its own cluster."""
        try:
            with socket.create_connection(self.broker, 1) as asking:
                asking.sendall(API_VERSIONS)
                return len(asking.recv(8)) == 8
        except OSError:
            return False
