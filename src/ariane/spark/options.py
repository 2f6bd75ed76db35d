"""The options of the source: read once, checked as a whole, then a value that can be pickled.

Names are Spark's and RocketMQ's, in any case; a name that is not known is refused with the nearest
one that is, since an option that is silently ignored reads other rows than it was written for.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from ariane.errors import BadFilter, ClientError, ConfigError
from ariane.spark.bytes.contract import (
    FETCH_BYTES,
    RETRIES,
    SQL92,
    TAG,
    TIMEOUT_S,
    AccessOptions,
    AccessWay,
    ReadFilter,
)
from ariane.spark.offsets import Queue, flat
from ariane.spark.option_values import MOMENT_MS_MAX, OptionReader
from ariane.topics import (
    dead_letter_topic_of,
    group_fault,
    is_retry_or_dead_letter,
    retry_topic_of,
    topic_fault,
)

EARLIEST_OFFSET: Final = -2  # in JSON, as with Spark's Kafka source
LATEST_OFFSET: Final = -1
MAX_TRIGGER_DELAY_S: Final = 15 * 60.0

SELECTING: Final = ("subscribe", "subscribePattern", "assign", "dlqOf", "retryOf")
STARTING: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDING: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
SOURCE_OPTIONS: Final = (
    *SELECTING,
    "namesrv",
    "nameServer",
    "storePath",
    "access",
    *STARTING,
    *ENDING,
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxBytesPerPartition",
    "includeProperties",
    "subExpression",
    "sqlFilter",
    "group",
    "timeout",
    "retries",
    "fetchBytes",
    "checkCrc",
)
# What Spark itself puts beside the user's options, for a table in its catalog.
SPARKS_OWN: Final = ("path", "provider", "owner", "location", "external", "comment", "collation")


class Edge(StrEnum):
    """An end of a queue."""

    EARLIEST = "earliest"
    LATEST = "latest"


class NoMatch(StrEnum):
    """What to do when no message is as young as a starting time."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class OffsetsGiven:
    """An offset for each queue; -2 is the earliest, -1 the latest."""

    offsets: Mapping[Queue, int]
    option: str = field(default="the offsets", compare=False)  # that they were given by


@dataclass(frozen=True, slots=True)
class TimesGiven:
    """For each queue, the moment (ms) from which on messages were stored."""

    times: Mapping[Queue, int]
    option: str = field(default="the times", compare=False)  # that they were given by


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment (ms) for all queues."""

    ms: int


Position = Edge | OffsetsGiven | TimesGiven | Moment


@dataclass(frozen=True, slots=True)
class Selection:
    """Which queues to read: of topics by name, of topics by pattern, or by themselves."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    queues: frozenset[Queue] | None = None
    retry_prefixes: tuple[str, ...] = ()  # before the topic, in names of what was popped from it

    def among(self, topics: Collection[str]) -> list[str]:
        """Those of a cluster's topics that the pattern takes."""
        return sorted(topic for topic in topics if self._takes(topic, topics))

    def _takes(self, topic: str, topics: Collection[str]) -> bool:
        """Topics of groups are taken only by a pattern that begins like them."""
        assert self.pattern is not None
        if is_retry_or_dead_letter(topic) and not self.pattern.startswith("%"):
            return False
        if re.fullmatch(self.pattern, topic) is not None:
            return True
        # %RETRY%a_b is b popped by group a, or else of a group a_b: who knows all topics can tell.
        return any(
            topic.startswith(prefix) and topic.removeprefix(prefix) in topics
            for prefix in self.retry_prefixes
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a batch of a stream may, and should, hold."""

    max_offsets: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    max_delay_s: float = MAX_TRIGGER_DELAY_S  # for which `min_offsets` may hold a batch back


@dataclass(frozen=True, slots=True)
class Splits:
    """Into how many partitions ranges are divided."""

    min_partitions: int | None = None
    max_records: int | None = None
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All that the source was told."""

    selection: Selection
    access: AccessOptions
    starting: Position
    ending: Position
    no_match: NoMatch
    fails_on_data_loss: bool
    limits: Limits
    splits: Splits
    message_filter: ReadFilter | None
    group: str | None


def check_names(options: Mapping[str, str]) -> None:
    """Raise ConfigError for an option that the source does not have."""
    OptionReader(options).check_names(SOURCE_OPTIONS, ignored=SPARKS_OWN, what="the source")


def includes_properties(options: Mapping[str, str]) -> bool:
    """Whether the schema has the map of properties."""
    return OptionReader(options).flag("includeProperties", True)


def source_options(options: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
    """The options as a value; raises ConfigError for the first that cannot be used."""
    check_names(options)
    reader = OptionReader(options)
    if is_stream and (ends := reader.given(*ENDING)):
        raise ConfigError(f"{ends[0]} is for batch queries; a stream has no end")
    starting = _position(reader, STARTING, Edge.LATEST if is_stream else Edge.EARLIEST)
    ending = _position(reader, ENDING, Edge.LATEST)
    if not is_stream:
        _check_batch(starting, ending)
    return SourceOptions(
        selection=_selection(reader),
        access=_access(reader),
        starting=starting,
        ending=ending,
        no_match=reader.choice("startingOffsetsByTimestampStrategy", NoMatch, NoMatch.ERROR),
        fails_on_data_loss=reader.flag("failOnDataLoss", True),
        limits=_limits(reader),
        splits=Splits(
            min_partitions=reader.count("minPartitions"),
            max_records=reader.count("maxRecordsPerPartition"),
            max_bytes=reader.size("maxBytesPerPartition"),
        ),
        message_filter=_filter(reader),
        group=_group(reader),
    )


def _selection(reader: OptionReader) -> Selection:
    chosen = reader.given(*SELECTING)
    if not reader.given(*SOURCE_OPTIONS):
        raise ConfigError(
            "no option was given. Spark does not hand the options of a table to sources in Python: "
            "use CREATE TEMPORARY VIEW ... USING rocketmq OPTIONS (...), or give them with the "
            "query, as in SELECT * FROM t WITH (namesrv = '...', subscribe = '...')"
        )
    if len(chosen) != 1:
        found = "none was" if not chosen else f"{' and '.join(chosen)} were"
        raise ConfigError(f"exactly one of {', '.join(SELECTING)} says what to read; {found} given")
    name = chosen[0]
    text = reader.text(name)
    if text is None:
        raise ConfigError(f"{name} is empty; it says what to read")
    match name:
        case "subscribe":
            return Selection(topics=_topics(text))
        case "assign":
            return Selection(queues=_assigned(reader.json(name)))
        case "subscribePattern":
            return Selection(pattern=_pattern(text))
        case "dlqOf":
            return Selection(pattern=_any_of(map(dead_letter_topic_of, _groups(name, text))))
        case _:
            topics = [retry_topic_of(group) for group in _groups(name, text)]
            return Selection(
                pattern=_any_of(topics, r"(?:\+.+)?"),  # what was popped has one for each topic...
                retry_prefixes=tuple(topic + "_" for topic in topics),  # ...of one of two forms
            )


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(sorted({part.strip() for part in text.split(",")}))
    for topic in topics:
        if fault := topic_fault(topic):
            raise ConfigError(f"subscribe: {fault}")
    return topics


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ConfigError(
            f"subscribePattern {text!r} is not a regular expression: {error}"
        ) from None
    return text


def _groups(name: str, text: str) -> list[str]:
    groups = sorted({part.strip() for part in text.split(",")})
    for group in groups:
        if fault := group_fault(group):
            raise ConfigError(f"{name}: {fault}")
    return groups


def _any_of(topics: Iterable[str], more: str = "") -> str:
    """A pattern rather than names: nothing has failed yet as long as there is no such topic."""
    return "|".join(re.escape(topic) + more for topic in topics)


def _assigned(value: object) -> frozenset[Queue]:
    example = 'assign must look like {"topic":{"broker-a":[0,1]}}'
    if not isinstance(value, dict) or not value:
        raise ConfigError(f"{example}, and is {value!r}")
    queues = set()
    for topic, brokers in value.items():
        if not isinstance(brokers, dict):
            raise ConfigError(f"{example}; topic {topic} has {brokers!r} instead of its brokers")
        for broker, numbers in brokers.items():
            if not isinstance(numbers, list) or not all(_is_queue_id(n) for n in numbers):
                raise ConfigError(f"{example}; broker {broker} has {numbers!r} as its queues")
            queues |= {Queue(topic, broker, number) for number in numbers}
    if not queues:
        raise ConfigError(f"{example}, and names no queue")
    return frozenset(queues)


def _is_queue_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _access(reader: OptionReader) -> AccessOptions:
    if len(reader.given("namesrv", "nameServer")) == 2:
        raise ConfigError("namesrv and nameServer are two names of one option; give one")
    servers = reader.text("namesrv") or reader.text("nameServer")
    store_path = reader.text("storePath")
    way = reader.choice("access", AccessWay, AccessWay.AUTO)
    if servers is None and store_path is None:
        raise ConfigError(
            "where are the messages? give namesrv (as in 127.0.0.1:9876), or storePath for the "
            "files of a broker"
        )
    if way is AccessWay.DIRECT and store_path is None:
        raise ConfigError("access=direct reads a broker's files; say where they are by storePath")
    if way in (AccessWay.WIRE, AccessWay.BULK) and servers is None:
        raise ConfigError(f"access={way} asks brokers; say by namesrv where they are found")
    fetch_bytes = reader.size("fetchBytes")
    timeout_s = reader.duration_s("timeout", least_s=0.001)
    retries = reader.count("retries", least=0)
    return AccessOptions(
        name_servers=() if servers is None else _addresses(servers),
        access=way,
        store_path=store_path,
        fetch_bytes=FETCH_BYTES if fetch_bytes is None else fetch_bytes,
        timeout_s=TIMEOUT_S if timeout_s is None else timeout_s,
        retries=RETRIES if retries is None else retries,
        check_crc=reader.flag("checkCrc", False),
    )


def _addresses(text: str) -> tuple[str, ...]:
    from ariane.client.routes import addresses_of  # noqa: PLC0415 - what has no broker needs none

    try:
        return tuple(addresses_of(text))
    except ClientError as error:
        raise ConfigError(f"namesrv: {error}") from None


def _position(reader: OptionReader, names: tuple[str, str, str], default: Edge) -> Position:
    """Where to start or end: one time for all goes before times, and those before offsets."""
    one, times, offsets = names
    moment_ms = reader.moment_ms(one)
    if moment_ms is not None:
        return Moment(moment_ms)
    if (value := reader.json(times)) is not None:
        return TimesGiven(flat(value, times, most=MOMENT_MS_MAX), times)
    text = reader.text(offsets)
    if text is None:
        return default
    if text.lower() in tuple(Edge):
        return Edge(text.lower())
    if not text.startswith("{"):
        raise ConfigError(f"{offsets} must be earliest, latest or JSON, not {text!r}")
    given = flat(reader.json(offsets), offsets, least=EARLIEST_OFFSET)
    return OffsetsGiven(given, offsets)


def _check_batch(starting: Position, ending: Position) -> None:
    if starting is Edge.LATEST or _holds(starting, LATEST_OFFSET):
        raise ConfigError(
            "startingOffsets: a batch query cannot start at latest (-1), it would read nothing"
        )
    if ending is Edge.EARLIEST or _holds(ending, EARLIEST_OFFSET):
        raise ConfigError(
            "endingOffsets: a batch query cannot end at earliest (-2), it would read nothing"
        )
    if isinstance(starting, Moment) and isinstance(ending, Moment) and starting.ms > ending.ms:
        raise ConfigError(
            f"startingTimestamp {starting.ms} is after endingTimestamp {ending.ms}; swap them?"
        )
    if isinstance(starting, OffsetsGiven) and isinstance(ending, OffsetsGiven):
        for queue, first in starting.offsets.items():
            end = ending.offsets.get(queue, first)
            if first > end >= 0:
                raise ConfigError(
                    f"{queue}: startingOffsets says {first}, after endingOffsets' {end}"
                )


def _holds(position: Position, offset: int) -> bool:
    return isinstance(position, OffsetsGiven) and offset in position.offsets.values()


def _limits(reader: OptionReader) -> Limits:
    limits = Limits(
        max_offsets=reader.count("maxOffsetsPerTrigger"),
        max_bytes=reader.size("maxBytesPerTrigger"),
        min_offsets=reader.count("minOffsetsPerTrigger"),
        max_delay_s=_or(reader.duration_s("maxTriggerDelay"), MAX_TRIGGER_DELAY_S),
    )
    if limits.max_offsets and limits.min_offsets and limits.min_offsets > limits.max_offsets:
        raise ConfigError(
            f"minOffsetsPerTrigger {limits.min_offsets} is more than maxOffsetsPerTrigger "
            f"{limits.max_offsets}"
        )
    return limits


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _filter(reader: OptionReader) -> ReadFilter | None:
    tags, sql = reader.text("subExpression"), reader.text("sqlFilter")
    if tags is not None and sql is not None:
        raise ConfigError("subExpression (tags) and sqlFilter (SQL92) exclude each other; give one")
    if sql is not None:
        return _checked("sqlFilter", ReadFilter(sql, SQL92))
    if tags is None or tags == "*":
        return None
    return _checked("subExpression", ReadFilter(tags, TAG))


def _checked(name: str, message_filter: ReadFilter) -> ReadFilter:
    """A fault is told when the query is planned, and not by a task that fails."""
    from ariane.broker.filters import of_expression  # noqa: PLC0415 - the compiler; few need it

    try:
        of_expression(message_filter.expression, message_filter.kind)
    except BadFilter as error:
        raise ConfigError(f"{name} {message_filter.expression!r}: {error}") from None
    return message_filter


def _group(reader: OptionReader) -> str | None:
    group = reader.text("group")
    if group is not None and (fault := group_fault(group)):
        raise ConfigError(f"group: {fault}")
    if group is not None and not reader.given("namesrv", "nameServer"):
        raise ConfigError("group: its progress is kept by brokers; give namesrv beside storePath")
    return group
