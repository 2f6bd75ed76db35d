"""What pipelines make of messages, on rows made by hand."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ariane.client.trace import (
    MessageKind,
    TraceLine,
    consumed_line,
    consuming_line,
    ended_line,
    sent_line,
)
from ariane.errors import ConfigError
from ariane.spark.offsets import Queue
from ariane.spark.pipelines import choosing, dlq, letters, metrics, quality, rules, sending, trace
from ariane.spark.pipelines.messages import utc_day
from ariane.spark.pipelines.translation import positions, runs
from tests.harness.message_rows import START, frame, message

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_S = 86_400
START_MS = round(START.timestamp() * 1000)


# metrics


def test_windows_count_sizes_and_latencies(spark: "SparkSession") -> None:
    rows = frame(
        spark,
        *(message(offset=n, body=b"x" * (n + 1), stored_s=n, late_ms=n) for n in range(100)),
        message("other", offset=0, body=b"xyz", stored_s=61, late_ms=7),
    )
    first, second, other = metrics.windows(rows, 60).orderBy("topic", "window_ms").collect()[::1]
    by_topic = {(row["topic"], row["window_ms"] - START_MS): row for row in (first, second, other)}
    early = by_topic["orders", 0]
    assert (early["messages"], early["rate"], early["bytes"]) == (60, 1.0, 60 * 61 // 2)
    assert (early["p50_ms"], early["p99_ms"], early["max_ms"]) == (29, 59, 59)
    assert (early["mean_bytes"], early["max_bytes"]) == (30.5, 60)
    assert by_topic["orders", 60_000]["messages"] == 40
    assert by_topic["other", 60_000]["p99_ms"] == 7


def test_windows_by_tag(spark: "SparkSession") -> None:
    rows = frame(spark, message(tags="a"), message(offset=1, tags="b"), message(offset=2, tags="a"))
    found = {
        row["tags"]: row["messages"] for row in metrics.windows(rows, 1, by_tag=True).collect()
    }
    assert found == {"a": 2, "b": 1}


# trace


def sent(
    message_id: str, at_ms: int, *, cost_ms: int = 3, kind: int = MessageKind.NORMAL
) -> TraceLine:
    return sent_line(
        at_ms=at_ms,
        region="r",
        group="shop",
        topic="orders",
        message_id=message_id,
        tags="paid",
        keys=("k1", "k2"),
        store_host="10.0.0.1:10911",
        body_bytes=256,
        cost_ms=cost_ms,
        kind=MessageKind(kind),
        offset_message_id="0A" * 16,
        is_success=True,
    )


def delivered(
    message_id: str, request: str, at_ms: int, *, tries: int = 0, cost_ms: int = 5, ok: bool = True
) -> tuple[TraceLine, TraceLine]:
    before = consuming_line(
        at_ms=at_ms,
        region="r",
        group="billing",
        request_id=request,
        message_id=message_id,
        reconsume_times=tries,
        keys=("k1",),
    )
    after = consumed_line(
        at_ms=at_ms + cost_ms,
        group="billing",
        request_id=request,
        message_id=message_id,
        cost_ms=cost_ms,
        is_success=ok,
        keys=("k1",),
        outcome=0 if ok else 4,
    )
    return before, after


def test_one_row_for_each_message_traced(spark: "SparkSession") -> None:
    ended = ended_line(
        at_ms=9,
        region="r",
        group="shop",
        topic="orders",
        message_id="rolled-back",
        tags="",
        keys=(),
        store_host="h",
        transaction_id="t",
        state="ROLLBACK_MESSAGE",
        answers_check=False,
    )
    lines = [
        *delivered("plain", "r1", 1_020),  # told before its sending is
        sent("plain", 1_000),
        sent("retried", 2_000),
        *delivered("retried", "r2", 2_010, ok=False),
        *delivered("retried", "r3", 12_010, tries=1, cost_ms=20),
        sent("orphan", 3_000),
        sent("twice", 4_000),
        *delivered("twice", "r4", 4_010),
        *delivered("twice", "r5", 4_020),
        sent("rolled-back", 5_000, kind=MessageKind.HALF),
        ended,
        *delivered("unsent", "r6", 6_000),
    ]
    texts = [line.encode() for line in lines]
    bodies = ["".join(texts[:7]).encode(), "".join(texts[7:]).encode()]
    traces = frame(spark, *(message("T", 0, n, body) for n, body in enumerate(bodies)))
    found = {row["msgId"]: row for row in trace.journeys(traces).collect()}

    plain = found["plain"]
    assert (plain["topic"], plain["tags"], plain["keys"]) == ("orders", "paid", "k1 k2")
    assert (plain["producerGroup"], plain["sentMs"], plain["sendCostMs"]) == ("shop", 1_000, 3)
    assert (plain["bodyBytes"], plain["deliveries"], plain["totalMs"]) == (256, 1, 25)
    assert plain["consumers"][0].asDict() == {
        "group": "billing",
        "deliveries": 1,
        "successes": 1,
        "lastTry": 0,
        "begunMs": 1_020,
        "doneMs": 1_025,
        "costMs": 5,
    }
    retried = found["retried"]
    assert (retried["deliveries"], retried["isDouble"], retried["totalMs"]) == (2, False, 10_030)
    assert [id_ for id_, row in found.items() if row["isOrphan"]] == ["orphan"]
    assert [id_ for id_, row in found.items() if row["isDouble"]] == ["twice"]
    assert found["rolled-back"]["transaction"] == "ROLLBACK_MESSAGE"
    assert found["unsent"]["sentMs"] is None

    summed = {
        (row["topic"], row["group"]): row for row in trace.summary(trace.journeys(traces)).collect()
    }
    billing = summed["orders", "billing"]
    assert (billing["messages"], billing["deliveries"], billing["doubles"]) == (3, 5, 1)
    assert summed["orders", None]["orphans"] == 1


def test_lines_of_old_clients(spark: "SparkSession") -> None:
    old_sent = "\1".join(["Pub", "10", "r", "g", "t", "id", "", "", "h", "9", "4", "0", "true"])
    old_done = "\1".join(["SubAfter", "req", "id", "6", "true", "k", "0"])
    old_begun = "\1".join(["SubBefore", "20", "r", "readers", "req", "id", "0", "k"])
    body = "\2".join([old_sent, old_begun, old_done]) + "\2"
    [row] = trace.journeys(frame(spark, message("T", body=body.encode()))).collect()
    assert (row["isSent"], row["isOrphan"], row["sendCostMs"]) == (True, False, 4)
    [consumer] = row["consumers"]
    assert (consumer["group"], consumer["doneMs"], consumer["costMs"]) == ("readers", 26, 6)


# dead letters


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        (b'{"b": 1, "a": {"c": 2}}', "json{a,b}"),
        (b"{}", "json{}"),
        (b"[1, 2]", "json[]"),
        (b"17", "json"),
        (b"not json {", "text"),
        (b"\xff\xfe", "binary"),
        (b"", "empty"),
    ],
)
def test_shapes_of_bodies(spark: "SparkSession", body: bytes, shape: str) -> None:
    [row] = letters.described(frame(spark, message("%DLQ%g", body=body))).collect()
    assert row["shape"] == shape


def test_letters_of_a_kind_come_together(spark: "SparkSession") -> None:
    timeout = {"RETRY_TOPIC": "orders", "cause": "timeout"}
    rows = frame(
        spark,
        *(
            message("%DLQ%billing", 0, n, b'{"id": 1}', properties=timeout, tags="paid", stored_s=n)
            for n in range(3)
        ),
        message("%DLQ%billing", 0, 3, b'{"id": 1}', properties=timeout, stored_s=-2 * DAY_S),
        message("%DLQ%mail", 0, 0, b"?", properties={"error": "bounced"}),
        message("%DLQ%mail", 0, 1, b"?"),
    )
    found = dlq.triage(letters.described(rows), START_MS + 3_000).collect()
    kinds = {
        (row["group"], row["originTopic"], row["cause"], row["shape"], row["age"]): row["letters"]
        for row in found
    }
    assert kinds == {
        ("billing", "orders", "timeout", "json{id}", "under 1 h"): 3,
        ("billing", "orders", "timeout", "json{id}", "under 7 d"): 1,
        ("mail", "%DLQ%mail", "bounced", "text", "under 1 h"): 1,
        ("mail", "%DLQ%mail", "unknown", "text", "under 1 h"): 1,
    }
    assert found[0]["letters"] == 3
    assert found[0]["example"] == "%DLQ%billing-0-0"


# rules

RULES = """
[[rule]]
field = "id"
type = "integer"
required = true

[[rule]]
field = "customer.mail"
pattern = "@"
max_length = 20

[[rule]]
field = "amount"
type = "number"
min = 0
max = 100

[[rule]]
field = "currency"
values = ["EUR", "USD"]

[[rule]]
name = "paid has a date"
check = "variant_get(json, '$.date', 'string') is not null"
tags = ["paid"]
"""


@pytest.mark.parametrize(
    ("body", "tags", "reasons"),
    [
        (b'{"id": 1}', None, []),
        (b'{"id": 1, "amount": 2.5, "currency": "EUR", "customer": {"mail": "a@b"}}', None, []),
        (b'{"id": 1, "amount": null}', None, []),
        (b"{", None, ["body is not JSON"]),
        (b"\xff", None, ["body is not JSON"]),
        (b"[]", None, ["id: is missing"]),
        (b'{"id": null}', None, ["id: is missing"]),
        (b'{"id": "1"}', None, ["id: is no integer"]),
        (b'{"id": 1.5}', None, ["id: is no integer"]),
        (b'{"id": 1, "amount": -1}', None, ["amount: is under 0"]),
        (b'{"id": 1, "amount": 1e3}', None, ["amount: is over 100"]),
        (b'{"id": 1, "amount": "much"}', None, ["amount: is no number"]),
        (b'{"id": 1, "currency": "GBP"}', None, ["currency: is none of the values"]),
        (b'{"id": 1, "customer": {"mail": "nobody"}}', None, ["customer.mail: does not match @"]),
        (b'{"id": 1}', "paid", ["paid has a date: does not hold"]),
        (b'{"id": 1, "date": "2026-11-16"}', "paid", []),
        (b'{"amount": 200}', None, ["id: is missing", "amount: is over 100"]),
    ],
)
def test_rules(
    spark: "SparkSession", tmp_path: Path, body: bytes, tags: str | None, reasons: list[str]
) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(RULES)
    rows = frame(spark, message(body=body, tags=tags))
    [row] = quality.judge(rows, rules.read_rules(path)).select("reasons").collect()
    assert row["reasons"] == reasons


def test_a_check_that_spark_cannot_read(spark: "SparkSession") -> None:
    with pytest.raises(ConfigError, match="a rule cannot be read"):
        quality.judge(frame(spark, message()), (rules.Rule(check="no_such_column = 1"),))


# choosing and sending on


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        ({}, [0, 1, 2, 3]),
        ({"keys": ("k2", "k3")}, [1, 2]),
        ({"key_from": "k2"}, [1, 2]),
        ({"key_to": "k2"}, [0, 1]),
        ({"key_from": "k1", "key_to": "k2"}, [0, 1]),
        ({"tags": ("paid",)}, [0]),
        ({"where": "properties['vip'] = 'yes' OR queueOffset = 3"}, [2, 3]),
    ],
)
def test_choosing(spark: "SparkSession", options: dict[str, object], offsets: list[int]) -> None:
    rows = frame(
        spark,
        message(offset=0, keys="k1", tags="paid"),
        message(offset=1, keys="k1 k2"),
        message(offset=2, keys="k3", properties={"vip": "yes"}),
        message(offset=3),
    )
    config = choosing.ChoiceConfig(**options)  # type: ignore[arg-type]
    found = choosing.chosen(rows, config).orderBy("queueOffset").collect()
    assert [row["queueOffset"] for row in found] == offsets


def test_a_condition_that_spark_cannot_read(spark: "SparkSession") -> None:
    with pytest.raises(ConfigError, match=r"--where 'nonsense = 1'.*columns are topic, brokerName"):
        choosing.chosen(frame(spark, message()), choosing.ChoiceConfig(where="nonsense = 1"))


def test_what_goes_on_with_a_message(spark: "SparkSession") -> None:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    rows = frame(
        spark,
        message(
            queue_id=5,
            offset=7,
            body=b"hello",
            keys="k1 k2",
            tags="paid",
            properties={"mine": "1", "UNIQ_KEY": "x", "KEYS": "k1 k2", "__SHARDINGKEY": "u1"},
            late_ms=250,
        ),
    )
    sources = [Queue("orders", broker, n) for broker in ("broker-0", "broker-a") for n in range(6)]
    places = sending.Places(sources, {"copy": 4})  # it is number 11 of them
    for order, queue, key in (("queue", 3, "u1"), ("key", None, "u1"), ("none", None, "u1")):
        [row] = sending.outgoing(
            rows, F.lit("copy"), order=order, places=places, told={"WHY": F.lit("test")}
        ).collect()
        assert (row["topic"], row["body"], row["keys"], row["tags"]) == (
            *("copy", bytearray(b"hello"), "k1 k2", "paid"),
        )
        assert (row["queueId"], row["shardingKey"]) == (queue, key)
        assert row["properties"] == {
            "mine": "1",
            "WHY": "test",
            "ORIGIN_TOPIC": "orders",
            "ORIGIN_QUEUE": "broker-a/5",
            "ORIGIN_OFFSET": "7",
            "ORIGIN_ID": "orders-5-7",
            "ORIGIN_BORN_MS": str(START_MS - 250),
        }


def test_days_are_utc(spark: "SparkSession") -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
    try:
        rows = frame(spark, message(stored_s=-0.001), message(offset=1))
        days = [
            row[0]
            for row in rows.orderBy("queueOffset", "storeTimestamp").select(utc_day()).collect()
        ]
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert sorted(days) == ["2026-11-15", "2026-11-16"]


# translation of offsets


def test_offsets_of_a_copy(spark: "SparkSession") -> None:
    def copy(offset: int, queue: int, source_queue: int, source_offset: int) -> tuple[object, ...]:
        told = {
            "ORIGIN_TOPIC": "orders",
            "ORIGIN_QUEUE": f"broker-a/{source_queue}",
            "ORIGIN_OFFSET": str(source_offset),
        }
        return message("copy", queue, offset, properties=told)

    copies = frame(
        spark,
        *(copy(n, 0, 0, 100 + n) for n in range(10)),  # queue 0 went to queue 0
        *(copy(n, 1, 1, 2 * n) for n in range(5)),  # every other one of queue 1 to queue 1
        message("copy", 1, 5),  # somebody else's
    )
    pairs = runs(copies).persist()
    [whole] = pairs.where("source_queue = 0").collect()
    assert (whole["first"], whole["end"], whole["copied_first"], whole["messages"]) == (
        100,
        110,
        0,
        10,
    )
    source = {number: Queue("orders", "broker-a", number) for number in (0, 1)}
    copied = {number: Queue("copy", "broker-a", number) for number in (0, 1)}
    for done, position in [
        ({0: 104, 1: 4}, {0: 4, 1: 2}),
        ({0: 104, 1: 5}, {0: 4, 1: 3}),  # 5 went elsewhere: next here is 6
        ({0: 110, 1: 9}, {0: 10, 1: 5}),
        ({0: None, 1: None}, {0: 0, 1: 0}),
    ]:
        found = positions(spark, pairs, {source[n]: offset for n, offset in done.items()})
        assert found == {copied[n]: offset for n, offset in position.items()}
