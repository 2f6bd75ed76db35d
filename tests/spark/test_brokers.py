"""Source and sink with three brokers, each a process; one is killed while rows are written."""

from pathlib import Path
from typing import TYPE_CHECKING

from ariane.errors import ClientError
from ariane.sync import Client
from tests.harness.processes import ARIANE, Server, free_port, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAMES = ("broker-a", "broker-b", "broker-c")
ROWS = 60_000


class Brokers(Server):
    """A name server and three of Ariane's brokers."""

    def launch(self, settings: dict[str, object]) -> Path:
        self.namesrv = ("127.0.0.1", free_port())
        self._ports = {name: free_port(-2, 1) for name in NAMES}
        self.spawn("namesrv", [ARIANE, "namesrv", "--port", str(self.namesrv[1])])
        for name in NAMES:
            output = self.start_broker(name)
        return output

    def start_broker(self, name: str) -> Path:
        keys = {
            "brokerName": name,
            "brokerIP1": "127.0.0.1",
            "listenPort": self._ports[name],
            "haListenPort": free_port(),
            "namesrvAddr": self.namesrv_address,
            "storePathRootDir": self.directory / name,
        }
        words = [f"--set={key}={value}" for key, value in keys.items()]
        return self.spawn(name, [ARIANE, "broker", *words])

    def kill_broker(self, name: str) -> None:
        process = self.processes.pop(1 + NAMES.index(name))
        process.kill()
        process.wait()

    def is_ready(self, output: Path) -> bool:
        try:
            with Client(self.namesrv_address) as client:
                return len(client.admin.cluster().brokers) == len(NAMES)
        except ClientError:
            return False


def test_rows_are_spread_over_brokers_and_one_that_is_killed_loses_and_doubles_none(
    spark: "SparkSession", tmp_path: Path
) -> None:
    with Brokers(tmp_path).start() as brokers, Client(brokers.namesrv_address) as client:
        client.admin.create_topic("spread", write_queue_count=2)

        def written() -> "DataFrame":
            frame = spark.read.format("rocketmq").options(
                namesrv=brokers.namesrv_address, subscribe="spread"
            )
            return frame.load().selectExpr("int(string(body)) AS number", "brokerName", "queueId")

        def write(sql: str) -> None:
            frame = spark.sql(sql).write.format("rocketmq").mode("append")
            frame.options(namesrv=brokers.namesrv_address, topic="spread").save()

        write("SELECT cast(id AS string) AS body, cast(id % 6 AS int) AS queueId FROM range(60)")
        rows = written().collect()
        places = {(name, queue_id) for name in NAMES for queue_id in (0, 1)}
        assert {(row.brokerName, row.queueId) for row in rows} == places
        assert all(
            2 * NAMES.index(row.brokerName) + row.queueId == row.number % 6 for row in rows
        )  # queues are counted over all brokers

        stream = spark.readStream.format("rate-micro-batch").options(
            rowsPerBatch=ROWS // 6, numPartitions=2, startTimestamp=0
        )
        query = (
            stream.load()
            .selectExpr("cast(value + 60 AS string) AS body")
            .writeStream.format("rocketmq")
            .options(namesrv=brokers.namesrv_address, topic="spread")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            wait_until(lambda: written().count() > 60, "the first batch", seconds=60)
            brokers.kill_broker("broker-b")
            brokers.start_broker("broker-b")
            wait_until(
                lambda: (query.lastProgress or {"batchId": 0})["batchId"] >= 6,
                "more batches",
                seconds=60,
            )
        finally:
            query.stop()
        assert query.exception() is None
        wait_until(lambda: brokers.is_ready(tmp_path), "all brokers", seconds=60)
        # The batch under way when it was stopped may be there, or may wait for a restart.
        last = query.lastProgress
        assert last is not None
        numbers = [row.number for row in written().collect()]
        assert len(set(numbers)) == len(numbers)
        assert set(range(60 + (last["batchId"] + 1) * (ROWS // 6))) <= set(numbers)
