"""Spark's way to Ariane beside Spark's way to Kafka: one session, one machine, the same rows.

Both connectors run in the same `local[2]` session of two cores, which they share with the broker
they talk to, as in `make bench` everything does. Rows are 256 bytes; both topics have four
partitions. Reads go to Spark's `noop` sink, which takes every column of every row and drops it.

python -m benchmarks.spark [--quick] [--rounds N] [--rows N] [--only CASE,CASE]
"""

import argparse
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ariane.errors import ArianeError
from ariane.spark.pipelines import archive
from ariane.spark.session import session
from ariane.sync import Client
from benchmarks.figures import OURS, Figures, Row, table
from benchmarks.measure import LoadFailed, Run
from tests.harness import topics
from tests.harness.kafka import AS_RECOMMENDED, Kafka
from tests.harness.processes import ROOT, Ariane

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KAFKA = "kafka"
CONNECTOR = ROOT / ".cache/spark-kafka/lib"
SCRATCH = ROOT / ".cache/bench-spark"
PARTITIONS = 4
ROWS, ROWS_QUICK = 2_000_000, 200_000
TOPIC = "filled"
NARROW = "queueOffset bigint, storeTimestamp timestamp"
BATCHES = 25  # of a stream with few rows; the first ones are not counted
COUNTED_FROM = 10


@dataclass
class Place:
    """The session and both brokers."""

    spark: "SparkSession"
    ariane: Ariane
    kafka: Kafka | None  # None: ours alone
    rows: int
    rounds: int
    raw: list[dict[str, object]]  # every run, for the report

    def make_topic(self, topic: str) -> None:
        """The topic, empty on our side; Kafka's is made by its first row, when that has settled.

        An idempotent producer that meets a topic in the making may never get its numbers right.
        """
        with Client(self.ariane.namesrv_address) as client:
            topics.create(client, topic, PARTITIONS)
        if self.kafka is not None:
            self.to_kafka(self.spark.sql("SELECT '' AS key, CAST('' AS BINARY) AS body"), topic)

    def to_ours(self, frame: "DataFrame", topic: str) -> None:
        write = frame.selectExpr("key AS keys", "body").write.format("rocketmq").mode("append")
        write.option("namesrv", self.ariane.namesrv_address).option("topic", topic).save()

    def to_kafka(self, frame: "DataFrame", topic: str) -> None:
        assert self.kafka is not None
        write = frame.selectExpr("key", "body AS value").write.format("kafka")
        write.option("kafka.bootstrap.servers", self.kafka.bootstrap).option("topic", topic).save()

    def ours(self, access: str, columns: str = "", *, stream: bool = False) -> Any:
        read = (self.spark.readStream if stream else self.spark.read).format("rocketmq")
        read = read.option("namesrv", self.ariane.namesrv_address).option("subscribe", TOPIC)
        read = read.option("access", access)
        if access == "direct":
            read = read.option("storePath", str(self.ariane.store))
        if stream:
            read = read.option("startingOffsets", "earliest")
        return read.schema(columns) if columns else read

    def theirs(self, *, stream: bool = False) -> Any:
        assert self.kafka is not None
        read = (self.spark.readStream if stream else self.spark.read).format("kafka")
        read = read.option("kafka.bootstrap.servers", self.kafka.bootstrap)
        read = read.option("subscribe", TOPIC)
        return read.option("startingOffsets", "earliest") if stream else read

    def interleave(
        self, case: str, works: dict[str, Callable[[int], None]]
    ) -> dict[str, list[Run]]:
        """Each work in turn, a round unmeasured and then as many as count: rows a second."""
        if self.kafka is None:
            works.pop(KAFKA, None)
        runs: dict[str, list[Run]] = {name: [] for name in works}
        for number in range(-1, self.rounds):
            for name, work in works.items():
                begun = time.perf_counter()
                work(number)
                took = time.perf_counter() - begun
                print(f"  {name} {'warm' if number < 0 else number}: {took:.2f} s", flush=True)
                if number >= 0:
                    runs[name].append({"rows_per_s": self.rows / took, "took_s": took})
                    self.raw.append({"case": case, "name": name, **runs[name][-1]})
        return runs


def drop(frame: "DataFrame") -> None:
    """Have every row made, and keep none."""
    frame.write.format("noop").mode("overwrite").save()


def sink(place: Place) -> list[Row]:
    """Rows of a Parquet file to a new topic; ours published once whatever fails, Kafka's not."""
    frame = place.spark.read.parquet(str(SCRATCH / "rows"))
    for number in range(place.rounds + 1):
        place.make_topic(f"sink_{number}")
    runs = place.interleave(
        "spark-sink",
        {
            OURS: lambda number: place.to_ours(frame, f"sink_{number + 1}"),
            KAFKA: lambda number: place.to_kafka(frame, f"sink_{number + 1}"),
        },
    )
    figures = Figures("spark-sink", runs)
    figures.times_at_least("written exactly once", "msg/s", "rows_per_s", 0.8, KAFKA)
    return figures.rows


def read(place: Place) -> list[Row]:
    """All columns to nowhere, by each way to the bytes; Kafka's are fewer: it has no properties."""
    works: dict[str, Callable[[int], None]] = {
        access: lambda _, access=access: drop(place.ours(access).load())  # type: ignore[misc]
        for access in ("direct", "bulk", "wire")
    }
    works[KAFKA] = lambda _: drop(place.theirs().load())
    runs = place.interleave("spark-read", works)
    rows: list[Row] = []
    for access, factor in (("direct", 1.5), ("bulk", 1.0), ("wire", 0)):
        figures = Figures("spark-read", {OURS: runs[access], KAFKA: runs.get(KAFKA, [])})
        what = f"{access}, all columns"
        if factor:
            figures.times_at_least(what, "msg/s", "rows_per_s", factor, KAFKA)
        else:
            figures.shown(what, "msg/s", "rows_per_s", KAFKA)
        if access == "direct":
            figures.aims_at(what, "msg/s", "rows_per_s", 1e6)
        rows += figures.rows
    return rows


def narrow(place: Place) -> list[Row]:
    """Offset and time alone: what is not asked for is not made."""
    runs = place.interleave(
        "spark-narrow",
        {
            OURS: lambda _: drop(place.ours("direct", NARROW).load()),
            KAFKA: lambda _: drop(place.theirs().load().select("offset", "timestamp")),
        },
    )
    figures = Figures("spark-narrow", runs)
    figures.shown("direct, two columns", "msg/s", "rows_per_s", KAFKA)
    figures.aims_at("direct, two columns", "msg/s", "rows_per_s", 2e6)
    return figures.rows


def archived(place: Place) -> list[Row]:
    """The pipeline `archive` beside a plain stream from Kafka to Parquet."""

    def ours(number: int) -> None:
        config = archive.Config(
            topics=(TOPIC,),
            lake=str(SCRATCH / f"lake_{number}"),
            namesrv=place.ariane.namesrv_address,
            batch_messages=place.rows,
            source_options={"access": "direct", "storePath": str(place.ariane.store)},
        )
        archive.run(place.spark, config)
        shutil.rmtree(SCRATCH / f"lake_{number}")

    def theirs(number: int) -> None:
        path = SCRATCH / f"parquet_{number}"
        write = place.theirs(stream=True).load().writeStream.format("parquet")
        write = write.option("path", str(path / "rows")).option("compression", "zstd")
        write = write.option("checkpointLocation", str(path / "state"))
        write.trigger(availableNow=True).start().awaitTermination()
        shutil.rmtree(path)

    figures = Figures("spark-lake", place.interleave("spark-lake", {OURS: ours, KAFKA: theirs}))
    figures.shown("archived to Parquet", "msg/s", "rows_per_s", KAFKA)
    figures.aims_at("archived to Parquet", "msg/s", "rows_per_s", 3e5)
    return figures.rows


def overhead(place: Place) -> list[Row]:
    """What a source adds to a batch of few rows, over one of Spark's own that costs nothing."""
    blank = place.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100)
    streams = {
        "blank": blank.option("numPartitions", PARTITIONS),
        OURS: place.ours("auto", stream=True).option("maxOffsetsPerTrigger", 100),
    }
    if place.kafka is not None:
        streams[KAFKA] = place.theirs(stream=True).option("maxOffsetsPerTrigger", 100)
    found = {name: batch_ms(place, name, read.load()) for name, read in streams.items()}
    print("  " + ", ".join(f"{name} {ms:.0f} ms" for name, ms in found.items()), flush=True)
    ours = found[OURS] - found["blank"]
    theirs = found[KAFKA] - found["blank"] if KAFKA in found else None
    what = "added to a micro-batch"
    return [Row("spark-batch", what, "ms", ours, theirs, "< 150 ms", ours < 150, KAFKA)]


def batch_ms(place: Place, name: str, frame: "DataFrame") -> float:
    """The median time of a trigger with rows in a stream that has become warm."""
    write = frame.writeStream.format("noop").trigger(processingTime="0 seconds")
    query = write.option("checkpointLocation", str(SCRATCH / f"state_{name}")).start()
    try:
        while query.isActive:
            triggers = {
                progress["batchId"]: progress["durationMs"]["triggerExecution"]
                for progress in query.recentProgress
                if progress["numInputRows"]
            }
            if len(triggers) >= BATCHES:
                return float(statistics.median(list(triggers.values())[COUNTED_FROM:]))
            time.sleep(0.1)
        raise LoadFailed(f"the stream of {name} ended: {query.exception()}")
    finally:
        query.stop()


CASES: dict[str, Callable[[Place], list[Row]]] = {
    "spark-sink": sink,
    "spark-read": read,
    "spark-narrow": narrow,
    "spark-lake": archived,
    "spark-batch": overhead,
}


def spark_cases(
    names: Sequence[str],
    raw: list[dict[str, object]],
    failures: list[str],
    *,
    is_quick: bool,
    rounds: int,
    rows: int = 0,
    ours_only: bool = False,
) -> list[Row]:
    """The rows of these cases, which share servers and a session; every run is added to `raw`.

    A case that cannot be measured is told of in `failures`, and the others go on.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415 - other cases do without Spark

    rows = rows or (ROWS_QUICK if is_quick else ROWS)
    found: list[Row] = []
    shutil.rmtree(SCRATCH, ignore_errors=True)
    try:
        with ExitStack() as running:
            ariane = running.enter_context(Ariane(SCRATCH / OURS)).start()
            kafka = None
            if not ours_only:
                kafka = running.enter_context(Kafka(SCRATCH / KAFKA, flags=AS_RECOMMENDED))
                kafka.start(**{"num.partitions": PARTITIONS})
            spark = bench_session()
            running.callback(spark.stop)
            place = Place(spark, ariane, kafka, rows, rounds, raw)
            fill(place)
            for name in names:
                print(f"measuring {name}", flush=True)
                try:
                    rows_of_case = CASES[name](place)
                except (LoadFailed, ArianeError, PySparkException) as error:
                    failures.append(f"{name}: {str(error).strip().splitlines()[0]}")
                    continue
                print(table(rows_of_case), flush=True)
                found += rows_of_case
    finally:
        shutil.rmtree(SCRATCH, ignore_errors=True)
    return found


def bench_session() -> "SparkSession":
    jars = sorted(str(jar) for jar in CONNECTOR.glob("*.jar"))
    if not jars:
        raise SystemExit(
            f"Spark's connector for Kafka is not in {CONNECTOR}; `make bench` fetches it"
        )
    return session(
        "ariane bench",
        "local[2]",
        {
            "spark.jars": ",".join(jars),
            "spark.ui.enabled": "false",
            "spark.driver.memory": "3g",
        },
    )


def fill(place: Place) -> None:
    """The same rows as Parquet, in a topic of ours, and in one of Kafka's."""
    print(f"writing {place.rows:,} rows of 256 bytes to both", flush=True)
    frame = place.spark.range(0, place.rows, 1, PARTITIONS).selectExpr(
        "CAST(id AS STRING) AS key",
        "CAST(concat(sha2(CAST(id AS STRING), 512), sha2(CAST(-id AS STRING), 512)) AS BINARY)"
        " AS body",
    )
    frame.write.option("compression", "none").parquet(str(SCRATCH / "rows"))
    stored = place.spark.read.parquet(str(SCRATCH / "rows"))
    place.make_topic(TOPIC)
    place.to_ours(stored, TOPIC)
    counts = {OURS: place.ours("auto").load().count()}
    if place.kafka is not None:
        place.to_kafka(stored, TOPIC)
        counts[KAFKA] = place.theirs().load().count() - 1  # the row that made the topic
    if set(counts.values()) != {place.rows}:
        raise LoadFailed(f"of {place.rows} rows there are {counts}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure Spark's way to Ariane and to Kafka.")
    parser.add_argument("--quick", action="store_true", help="one round of few rows")
    parser.add_argument("--ours-only", action="store_true", help="without Kafka")
    parser.add_argument("--rounds", type=int, default=0, help="rounds; medians count (3)")
    parser.add_argument("--rows", type=int, default=0, help="rows of a read or write (2,000,000)")
    parser.add_argument("--only", default=",".join(CASES), help=f"cases, of {','.join(CASES)}")
    options = parser.parse_args()
    failures: list[str] = []
    rows = spark_cases(
        options.only.split(","),
        [],
        failures,
        is_quick=options.quick,
        rounds=options.rounds or (1 if options.quick else 3),
        rows=options.rows,
        ours_only=options.ours_only,
    )
    print(table(rows))
    for failure in failures:
        print(f"not measured: {failure}")
    return 1 if failures or any(row.fails for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
