"""A driver: relays a topic into another by a stream, then counts both by a batch read.

    relay.py MASTER NAMESRV FROM TO CHECKPOINT

The last line it prints is JSON: rows and distinct bodies of the second topic, and which executors
did the work.
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ariane.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}


def relay(spark: "SparkSession", namesrv: str, source: str, target: str, checkpoint: Path) -> None:
    read = spark.readStream.format("rocketmq").option("namesrv", namesrv)
    rows = read.option("subscribe", source).option("startingOffsets", "earliest").load()
    write = rows.select("body", "keys", "queueId").writeStream.format("rocketmq")
    query = (
        write.option("namesrv", namesrv)
        .option("topic", target)
        .option("checkpointLocation", checkpoint.as_uri())
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def bodies(spark: "SparkSession", namesrv: str, topic: str) -> "DataFrame":
    read = spark.read.format("rocketmq").option("namesrv", namesrv).option("subscribe", topic)
    return read.load().select("body")


def main(master: str, namesrv: str, source: str, target: str, checkpoint: str) -> None:
    spark = session("relay", master, SETTINGS)
    spark.sparkContext.setLogLevel("ERROR")
    relay(spark, namesrv, source, target, Path(checkpoint))
    out = bodies(spark, namesrv, target)
    lost = bodies(spark, namesrv, source).exceptAll(out).count()
    count = out.count()
    executors = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    print(json.dumps({"rows": count, "lost": lost, "executors": len(executors) - 1}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
