"""A driver that runs the streams of several histories until it is killed, or until all is done.

    history.py PLAN forever|available

PLAN is a file of JSON, written by `tests/spark/histories.py`. Each history is one query: from a
topic to Parquet, or to another topic by the sink. A query that fails is started anew from its
checkpoint, as an operator would. With `available` every query takes what is there; then the rows
that Parquet holds are written to the plan's directory, and the driver ends.
"""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ariane.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TRIES_MAX = 40  # of one query in one life: a broker is down for a second or two
POLL_S = 0.2


def start(
    spark: "SparkSession", plan: dict[str, Any], history: dict[str, Any], until: str
) -> "StreamingQuery":
    read = spark.readStream.format("rocketmq").option("namesrv", plan["namesrv"])
    rows = (
        read.option("subscribe", history["source"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", history["rows_per_batch"])
        .option("timeout", "5s")
        .load()
    )
    directory = Path(plan["directory"]) / history["name"]
    if history["kind"] == "parquet":
        chosen = rows.select("queueId", "queueOffset", "body")
        write = chosen.writeStream.format("parquet").option("path", str(directory / "rows"))
    else:
        chosen = rows.select("body", "queueId")
        write = chosen.writeStream.format("rocketmq").option("namesrv", plan["namesrv"])
        write = write.option("topic", history["target"])
    write = write.queryName(history["name"]).option("checkpointLocation", str(directory / "state"))
    if until == "available":
        query = write.trigger(availableNow=True).start()
    else:
        query = write.trigger(processingTime="0 seconds").start()
    # One after the other: Spark gives a stream reader's process ten seconds to begin, which ten of
    # them at once do not manage on a busy machine.
    while query.isActive and query.status["message"].startswith("Initializing"):
        time.sleep(POLL_S)
    return query


def run(spark: "SparkSession", plan: dict[str, Any], until: str) -> None:
    """Keep every query going; each line that is printed tells of one that failed."""
    histories = {history["name"]: history for history in plan["histories"]}
    running = {name: start(spark, plan, history, until) for name, history in histories.items()}
    tries = dict.fromkeys(histories, 0)
    print("running", flush=True)
    while running:
        for name, query in list(running.items()):
            if query.isActive:
                continue
            error = query.exception()
            if error is None:
                del running[name]
                continue
            tries[name] += 1
            print(f"{name} failed ({tries[name]}): {error}"[:2000], flush=True)
            if tries[name] > TRIES_MAX:
                raise SystemExit(f"{name} failed {TRIES_MAX} times in a row")
            running[name] = start(spark, plan, histories[name], until)
        time.sleep(POLL_S)


def export(spark: "SparkSession", plan: dict[str, Any]) -> None:
    """What readers of the Parquet files see, as one file for each history."""
    from pyarrow import parquet  # noqa: PLC0415 - a driver that will be killed needs it not

    for history in plan["histories"]:
        if history["kind"] == "parquet":
            directory = Path(plan["directory"]) / history["name"]
            table = spark.read.parquet(str(directory / "rows")).toArrow()
            parquet.write_table(table, directory / "seen.parquet")


def main(plan_path: str, until: str) -> None:
    plan = json.loads(Path(plan_path).read_text())
    spark = session("histories", plan["master"], plan["conf"])
    run(spark, plan, until)
    export(spark, plan)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
