"""The options of the sink: read once, checked as a whole, then a value that can be pickled."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from zlib import crc32

from ariane.errors import ConfigError
from ariane.spark.option_values import OptionReader
from ariane.topics import is_system_topic, topic_fault

TIMEOUT_S: Final = 120.0
SINK_OPTIONS: Final = (
    *("namesrv", "nameServer", "topic", "guarantee", "timeout"),
    *("queryId", "batchId"),
)
# What Spark itself puts beside the user's options.
SPARKS_OWN: Final = (
    "checkpointLocation",
    "queryName",
    "path",
    "serialization.format",
    "provider",
    "location",
    "owner",
    "is_managed",
)


_ADDRESS: Final = re.compile(r"\S+:\d{1,5}")
_QUERY: Final = re.compile(r"[a-zA-Z0-9._:-]{1,100}")  # brokers take a few more characters


class Guarantee(StrEnum):
    """How often a row arrives, whatever is killed and tried again."""

    AUTO = "auto"  # exactly once where all brokers can
    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """All that the sink was told."""

    name_servers: tuple[str, ...]
    topic: str | None
    guarantee: Guarantee
    timeout_s: float  # for which a broker may be away, or refuse, before a task or a batch fails
    # The name of a batch job's batch: one of that name that was published before is not again.
    query: str | None = None
    batch: int | None = None

    @property
    def batch_name(self) -> str | None:
        """What brokers know the query by: two topics that a batch is written to are two writes."""
        if self.query is None or self.topic is None:
            return self.query
        return f"{self.query}:{crc32(self.topic.encode()):08x}"


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """The options as a value; raises ConfigError for the first that cannot be used."""
    reader = OptionReader(options)
    reader.check_names(SINK_OPTIONS, ignored=SPARKS_OWN, what="the sink")
    if len(reader.given("namesrv", "nameServer")) == 2:
        raise ConfigError("namesrv and nameServer are two names of one option; give one")
    servers = reader.text("namesrv") or reader.text("nameServer")
    if servers is None:
        raise ConfigError("where do the messages go? give namesrv, as in 127.0.0.1:9876")
    name_servers = tuple(part.strip() for part in servers.replace(",", ";").split(";") if part)
    for address in name_servers:
        if _ADDRESS.fullmatch(address) is None:
            raise ConfigError(f"namesrv: {address!r} is not HOST:PORT, as in 127.0.0.1:9876")
    topic = reader.text("topic")
    if topic is not None:
        check_topic(topic)
    if len(reader.given("queryId", "batchId")) == 1:
        raise ConfigError("queryId and batchId name a batch together; give both")
    query = reader.text("queryId")
    if query is not None and _QUERY.fullmatch(query) is None:
        raise ConfigError(
            f"queryId {query!r} must be 1 to 100 letters, digits and . _ : - of the ASCII kind"
        )
    return SinkOptions(
        name_servers=name_servers,
        topic=topic,
        guarantee=reader.choice("guarantee", Guarantee, Guarantee.AUTO),
        timeout_s=reader.duration_s("timeout", least_s=0.001) or TIMEOUT_S,
        query=query,
        batch=reader.count("batchId", least=0),
    )


def check_topic(topic: str) -> None:
    """Raise ConfigError for a name that no message can be sent to."""
    if fault := topic_fault(topic):
        raise ConfigError(f"topic: {fault}")
    if is_system_topic(topic):
        raise ConfigError(f"topic {topic!r} belongs to the broker; write to one of your own")
