"""The sink against Apache's broker: rows arrive at least once, with unique keys that stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from ariane.sync import Client
from tests.harness.apache import Apache
from tests.spark.test_sink import read_all

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_apaches_broker_gets_every_row_and_exactly_once_is_refused(
    spark: SparkSession, apache: Apache
) -> None:
    with Client(apache.namesrv_address) as client:
        client.admin.create_topic("sink-apache", write_queue_count=2)
        frame = spark.sql("""
            SELECT cast(id AS string) AS body, concat('k', id) AS keys, 'red' AS tags,
                   map('n', cast(id AS string)) AS properties
            FROM range(0, 500, 1, 2)""")
        sink = frame.write.format("rocketmq").options(
            namesrv=apache.namesrv_address, topic="sink-apache"
        )
        with pytest.raises(PySparkException, match="needs Ariane's brokers"):
            sink.option("guarantee", "exactly-once").mode("append").save()
        sink.option("guarantee", "auto").mode("append").save()
        messages = [
            message for held in read_all(client, "sink-apache").values() for message in held
        ]
    assert sorted(int(message.body) for message in messages) == list(range(500))
    assert len({message.properties["UNIQ_KEY"] for message in messages}) == 500
    for message in messages:
        assert message.properties["KEYS"] == f"k{int(message.body)}"
        assert message.properties["TAGS"] == "red"
        assert message.properties["n"] == message.body.decode()
