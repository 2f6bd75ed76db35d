"""Apache RocketMQ's name server and broker, as processes, from the jars that `make` fetched."""

import os
from pathlib import Path

from tests.harness.processes import ROOT, Ariane, Server, free_port, text_of
from tests.harness.wire import Wire

JARS = Path(os.environ.get("APACHE_JARS", ROOT / ".cache/apache/lib"))
# What the broker needs opened to run on Java 17; the rest are the flags of its own runbroker.sh.
OPENS = [
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
]
NAMESRV = ["-Xms64m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
QUICK_START = ["-Xms512m", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
# One of its threads asks the clock without a pause until this time has passed: by default three
# seconds of every six, on a core that other tests need.
QUICK_SETTINGS: dict[str, object] = {"transactionMetricFlushInterval": 200}
AS_RECOMMENDED = [
    "-server", "-Xms2g", "-Xmx2g", "-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m",
    "-XX:G1ReservePercent=25", "-XX:InitiatingHeapOccupancyPercent=30",
    "-XX:SoftRefLRUPolicyMSPerMB=0", "-XX:-OmitStackTraceInFastThrow",
    "-XX:+AlwaysPreTouch", "-XX:MaxDirectMemorySize=15g", "-XX:-UseLargePages",
]  # fmt: skip


class Apache(Server):
    """Apache's name server and broker; the store is `store` below the directory unless told."""

    def __init__(
        self, directory: Path, *, store: Path | None = None, flags: list[str] | None = None
    ) -> None:
        super().__init__(directory)
        self.store = store or self.store
        self.flags = QUICK_START if flags is None else flags
        self.defaults = QUICK_SETTINGS if flags is None else {}

    def launch(self, settings: dict[str, object]) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.broker = ("127.0.0.1", free_port(-2, 1))  # it listens on two neighbours as well
        keys = {
            **self._launch_namesrv(),
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": 0,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": self.broker[1],
            "haListenPort": free_port(),
            "brokerRole": "ASYNC_MASTER",
            "autoCreateTopicEnable": True,
            "storePathRootDir": self.store,
            "storePathCommitLog": self.store / "commitlog",
            **self.defaults,
            **settings,
        }
        text = "".join(f"{key}={text_of(value)}\n" for key, value in keys.items())
        (self.directory / "broker.conf").write_text(text)
        return self._launch_broker()

    def _launch_namesrv(self) -> dict[str, object]:
        """Start the name server; gives what the broker is to know of it."""
        self.namesrv = ("127.0.0.1", free_port())
        (self.directory / "namesrv.conf").write_text(f"listenPort={self.namesrv[1]}\n")
        self._java("namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup", NAMESRV)
        return {"namesrvAddr": self.namesrv_address}

    def _launch_broker(self) -> Path:
        """Start the broker, whose settings are in broker.conf by now."""
        return self._java(
            "broker", "org.apache.rocketmq.broker.BrokerStartup", [*self.flags, *OPENS]
        )

    def _java(self, name: str, main: str, flags: list[str], *words: str, jars: Path = JARS) -> Path:
        return self.spawn(
            name,
            [
                "java",
                *flags,
                f"-Duser.home={self.directory}",
                "-cp",
                f"{jars}/*",
                main,
                *(words or ("-c", f"{name}.conf")),
            ],
            {"ROCKETMQ_HOME": str(self.directory)},
        )

    def stop(self) -> None:
        """Stop the broker cleanly; the name server keeps nothing and need not be waited for."""
        self.processes[0].kill()
        super().stop()

    def is_ready(self, output: Path) -> bool:
        try:
            with Wire(self.namesrv) as namesrv:
                return namesrv.call(105, {"topic": "TBW102"}, check=False).code == 0
        except OSError:
            return False


class ApacheBroker(Apache):
    """Apache's broker without a name server, for who speaks to it alone: half the time to start."""

    def _launch_namesrv(self) -> dict[str, object]:
        return {}

    def stop(self) -> None:
        Server.stop(self)

    def is_ready(self, output: Path) -> bool:
        try:
            with Wire(self.broker) as broker:
                return broker.call(26, {}, check=False).code == 0  # its settings
        except OSError:
            return False


def broker_on(kind: str, directory: Path, turn: int) -> Server:
    """One of the brokers that take turns on a store."""
    if kind == "ariane":
        return Ariane(directory / "data")
    return ApacheBroker(directory / f"apache-{turn}", store=directory / "data" / "store")
