"""Every option by its name: what it means, what it is when it is not given, what it refuses."""

import pickle
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from ariane.errors import ConfigError
from ariane.spark.bytes.contract import AccessOptions, AccessWay, ReadFilter
from ariane.spark.offsets import Queue
from ariane.spark.options import (
    SOURCE_OPTIONS,
    Edge,
    Limits,
    Moment,
    NoMatch,
    OffsetsGiven,
    Selection,
    SourceOptions,
    Splits,
    TimesGiven,
    check_names,
    includes_properties,
    source_options,
)

BASE = {"subscribe": "orders", "namesrv": "127.0.0.1:9876"}
Q0 = Queue("orders", "broker-a", 0)


def parsed(is_stream: bool = True, **options: str) -> SourceOptions:
    return source_options({**BASE, **options}, is_stream=is_stream)


def of(path: str, options: SourceOptions) -> Any:
    value: Any = options
    for name in path.split("."):
        value = getattr(value, name)
    return value


# option, text, where its meaning is found, its meaning, the default
MEANINGS = [
    ("startingOffsets", "earliest", "starting", Edge.EARLIEST, Edge.LATEST),
    ("startingOffsets", "Latest", "starting", Edge.LATEST, Edge.LATEST),
    (
        "startingOffsets",
        '{"orders":{"broker-a":{"0":-2}}}',
        "starting",
        OffsetsGiven({Q0: -2}),
        Edge.LATEST,
    ),
    ("startingTimestamp", "1700000000000", "starting", Moment(1700000000000), Edge.LATEST),
    (
        "startingTimestamp",
        "2023-11-14T23:13:20+01:00",
        "starting",
        Moment(1700000000000),
        Edge.LATEST,
    ),
    (
        "startingOffsetsByTimestamp",
        '{"orders":{"broker-a":{"0":1700000000000}}}',
        "starting",
        TimesGiven({Q0: 1700000000000}),
        Edge.LATEST,
    ),
    ("startingOffsetsByTimestampStrategy", "latest", "no_match", NoMatch.LATEST, NoMatch.ERROR),
    ("failOnDataLoss", "false", "fails_on_data_loss", False, True),
    ("maxOffsetsPerTrigger", "1000", "limits.max_offsets", 1000, None),
    ("maxBytesPerTrigger", "64m", "limits.max_bytes", 64 << 20, None),
    ("minOffsetsPerTrigger", "10", "limits.min_offsets", 10, None),
    ("maxTriggerDelay", "30s", "limits.max_delay_s", 30.0, 900.0),
    ("maxTriggerDelay", "250", "limits.max_delay_s", 0.25, 900.0),
    ("minPartitions", "8", "splits.min_partitions", 8, None),
    ("maxRecordsPerPartition", "5000", "splits.max_records", 5000, None),
    ("maxBytesPerPartition", "1g", "splits.max_bytes", 1 << 30, None),
    ("subExpression", "paid || sent", "message_filter", ReadFilter("paid || sent", "TAG"), None),
    ("subExpression", "*", "message_filter", None, None),
    ("sqlFilter", "price > 5", "message_filter", ReadFilter("price > 5", "SQL92"), None),
    ("group", "spark-orders", "group", "spark-orders", None),
    ("timeout", "5s", "access.timeout_s", 5.0, 30.0),
    ("retries", "0", "access.retries", 0, 3),
    ("fetchBytes", "1MiB", "access.fetch_bytes", 1 << 20, 4 << 20),
    ("checkCrc", "true", "access.check_crc", True, False),
    ("storePath", "/data/store", "access.store_path", "/data/store", None),
    ("access", "bulk", "access.access", AccessWay.BULK, AccessWay.AUTO),
]


@pytest.mark.parametrize(("name", "text", "path", "meaning", "default"), MEANINGS)
def test_an_option_means_what_it_says_in_any_case(
    name: str, text: str, path: str, meaning: object, default: object
) -> None:
    assert of(path, parsed(**{name: text})) == meaning
    assert of(path, parsed(**{name.upper(): text})) == meaning
    lowered = CaseInsensitiveDict({**BASE, name: text})  # lists only lower-cased names
    assert of(path, source_options(lowered, is_stream=True)) == meaning
    assert of(path, parsed()) == default


ENDINGS = [
    ("endingOffsets", "latest", Edge.LATEST),
    ("endingOffsets", '{"orders":{"broker-a":{"0":23}}}', OffsetsGiven({Q0: 23})),
    ("endingTimestamp", "1700000000000", Moment(1700000000000)),
    ("endingOffsetsByTimestamp", '{"orders":{"broker-a":{"0":5}}}', TimesGiven({Q0: 5})),
]


@pytest.mark.parametrize(("name", "text", "meaning"), ENDINGS)
def test_ends_are_for_batches(name: str, text: str, meaning: object) -> None:
    assert parsed(is_stream=False, **{name: text}).ending == meaning
    with pytest.raises(ConfigError, match=f"{name} is for batch"):
        parsed(is_stream=True, **{name: text})


SELECTIONS = [
    ("subscribe", "orders, payments,orders", Selection(topics=("orders", "payments"))),
    ("subscribePattern", "or.*", Selection(pattern="or.*")),
    (
        "assign",
        '{"orders":{"broker-a":[0,2]}}',
        Selection(queues=frozenset({Q0, Queue("orders", "broker-a", 2)})),
    ),
    ("dlqOf", "billing", Selection(pattern="%DLQ%billing")),
    (
        "retryOf",
        "billing",
        Selection(pattern=r"%RETRY%billing(?:\+.+)?", retry_prefixes=("%RETRY%billing_",)),
    ),
]


@pytest.mark.parametrize(("name", "text", "meaning"), SELECTIONS)
def test_what_to_read(name: str, text: str, meaning: Selection) -> None:
    options = {"namesrv": "127.0.0.1:9876", name: text}
    assert source_options(options, is_stream=True).selection == meaning


@pytest.mark.parametrize(
    ("option", "text", "topic", "is_taken"),
    [
        ("subscribePattern", "or.*", "orders", True),
        ("subscribePattern", "or", "orders", False),  # the whole name
        ("subscribePattern", ".*", "%RETRY%billing", False),
        ("subscribePattern", ".*", "%DLQ%billing", False),
        ("subscribePattern", "%DLQ%.*", "%DLQ%billing", True),
        ("dlqOf", "billing,ship-ping", "%DLQ%ship-ping", True),
        ("dlqOf", "billing", "%DLQ%billing2", False),
        ("retryOf", "billing", "%RETRY%billing", True),
        ("retryOf", "billing", "%RETRY%billing+orders", True),
        ("retryOf", "billing", "%RETRY%billing2", False),
        ("retryOf", "billing", "%RETRY%billing_orders", True),  # popped, as most brokers name it
        ("retryOf", "billing", "%RETRY%billing_eu", False),  # there is no topic eu: a group's own
        ("retryOf", "bill,billing_eu", "%RETRY%billing_eu_orders", True),
    ],
)
def test_topics_by_pattern(option: str, text: str, topic: str, is_taken: bool) -> None:
    options = source_options({"namesrv": "127.0.0.1:9876", option: text}, is_stream=True)
    assert (topic in options.selection.among({"orders", "payments", topic})) is is_taken


def test_every_option_is_in_one_of_the_tables() -> None:
    told = {name for name, *_ in MEANINGS} | {name for name, *_ in ENDINGS}
    told |= {name for name, *_ in SELECTIONS} | {"namesrv", "nameServer", "includeProperties"}
    assert told == set(SOURCE_OPTIONS)


def test_both_names_of_the_name_server() -> None:
    for name in ("namesrv", "nameServer", "NAMESERVER"):
        options = source_options({"subscribe": "orders", name: "a:1;b:2"}, is_stream=True)
        assert options.access == AccessOptions(name_servers=("a:1", "b:2"))


def test_a_store_needs_no_name_server() -> None:
    options = source_options({"subscribe": "orders", "storePath": "/data"}, is_stream=False)
    assert options.access == AccessOptions(store_path="/data")


def test_progress_is_kept_by_brokers_and_not_by_files() -> None:
    options = {"subscribe": "orders", "storePath": "/data", "group": "spark-orders"}
    with pytest.raises(ConfigError, match="give namesrv beside storePath"):
        source_options(options, is_stream=True)


def test_properties_are_there_unless_refused() -> None:
    assert includes_properties({})
    assert not includes_properties({"includeproperties": "FALSE"})


def test_one_time_goes_before_times_and_those_before_offsets() -> None:
    times = '{"orders":{"broker-a":{"0":5}}}'
    all_three = {
        "startingTimestamp": "7",
        "startingOffsetsByTimestamp": times,
        "startingOffsets": "earliest",
    }
    assert parsed(**all_three).starting == Moment(7)
    del all_three["startingTimestamp"]
    assert parsed(**all_three).starting == TimesGiven({Q0: 5})


def test_a_batch_starts_at_the_earliest_and_ends_at_the_latest() -> None:
    options = parsed(is_stream=False)
    assert (options.starting, options.ending) == (Edge.EARLIEST, Edge.LATEST)


def test_limits_of_triggers_do_not_trouble_a_batch() -> None:
    assert parsed(is_stream=False, maxOffsetsPerTrigger="5").limits == Limits(max_offsets=5)


def test_options_travel_to_executors() -> None:
    options = parsed(sqlFilter="a > 1", minPartitions="3")
    assert pickle.loads(pickle.dumps(options)) == options
    assert options.splits == Splits(min_partitions=3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"maxOffsetPerTrigger": "1"}, "did you mean maxOffsetsPerTrigger?"),
        ({"subscribes": "x"}, "did you mean subscribe?"),
        ({"kafka.bootstrap.servers": "x"}, "known are: subscribe"),
        ({"subscribePattern": "x"}, "subscribe and subscribePattern were given"),
        ({"subscribe": ""}, "subscribe is empty"),
        ({"subscribe": "a b"}, "may only hold"),
        ({"nameServer": "b:2"}, "two names of one option"),
        ({"namesrv": "nowhere"}, "namesrv: "),
        ({"access": "quick"}, "access must be one of auto, wire, bulk, direct"),
        ({"access": "direct"}, "storePath"),
        ({"startingOffsets": "begin"}, "earliest, latest or JSON"),
        ({"startingOffsets": '{"orders":{"0":1}}'}, "broker-a"),
        ({"startingOffsets": '{"orders":'}, "is not JSON"),
        ({"startingOffsets": '{"orders":{"broker-a":{"0":-3}}}'}, "-3"),
        ({"startingTimestamp": "2026-01-01T00:00:00"}, "offset from UTC"),
        ({"startingTimestamp": "soon"}, "milliseconds since 1970"),
        ({"startingTimestamp": "99999999999999999999"}, "startingTimestamp must be milliseconds"),
        (
            {"startingOffsetsByTimestamp": '{"orders":{"broker-a":{"0":99999999999999999999}}}'},
            "startingOffsetsByTimestamp must look like",
        ),
        ({"startingOffsets": '{"orders":{"broker-a":{"0":99999999999999999999}}}'}, "to 92233"),
        ({"timeout": "0"}, "timeout must be 1ms or longer, not '0'"),
        ({"startingOffsetsByTimestamp": '{"orders":{"broker-a":{"0":-1}}}'}, "-1"),
        ({"startingOffsetsByTimestampStrategy": "skip"}, "error, latest"),
        ({"failOnDataLoss": "no"}, "true or false"),
        ({"maxOffsetsPerTrigger": "0"}, "from 1 up"),
        ({"maxOffsetsPerTrigger": "1e6"}, "whole number"),
        ({"maxBytesPerTrigger": "0"}, "size such as"),
        ({"maxTriggerDelay": "soon"}, "time such as"),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "more than"),
        ({"subExpression": "a", "sqlFilter": "b > 1"}, "exclude each other"),
        ({"sqlFilter": "price >"}, "sqlFilter 'price >': "),
        ({"subExpression": "||"}, "subExpression"),
        ({"group": "a b"}, "group: "),
    ],
)
def test_refusals_say_what_to_do(options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("?", r"\?")):
        parsed(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": "latest"}, "cannot start at latest"),
        ({"startingOffsets": '{"orders":{"broker-a":{"0":-1}}}'}, "cannot start at latest"),
        ({"endingOffsets": "earliest"}, "cannot end at earliest"),
        ({"endingOffsets": '{"orders":{"broker-a":{"0":-2}}}'}, "cannot end at earliest"),
        ({"startingTimestamp": "9", "endingTimestamp": "8"}, "startingTimestamp 9 is after"),
        (
            {
                "startingOffsets": '{"orders":{"broker-a":{"0":9}}}',
                "endingOffsets": '{"orders":{"broker-a":{"0":8}}}',
            },
            "says 9, after endingOffsets' 8",
        ),
    ],
)
def test_a_batch_that_ends_before_it_starts_is_refused_before_anybody_is_asked(
    options: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        parsed(is_stream=False, **options)


@pytest.mark.parametrize(
    "value", ['{"t":[0]}', '{"t":{"b":0}}', '{"t":{"b":[-1]}}', "[]", '{"t":{"b":[]}}']
)
def test_queues_are_assigned_in_one_way_only(value: str) -> None:
    with pytest.raises(ConfigError, match="assign must look like"):
        source_options({"namesrv": "a:1", "assign": value}, is_stream=True)


@pytest.mark.parametrize("options", [{"namesrv": "a:1"}, {"subscribe": "orders"}])
def test_what_and_where_must_be_said(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"says what to read|where are the messages"):
        source_options(options, is_stream=True)


def test_a_table_whose_options_spark_kept_to_itself() -> None:
    with pytest.raises(ConfigError, match="CREATE TEMPORARY VIEW"):
        source_options({"provider": "rocketmq"}, is_stream=False)


def test_what_spark_adds_by_itself_is_passed_over() -> None:
    check_names({**BASE, "path": "/warehouse/orders"})
    repeated = {f"option.{name}": text for name, text in BASE.items()}  # for a table in SQL
    assert source_options({**BASE, **repeated}, is_stream=True) == parsed()
