"""Writes docs/reference/limits.md from the code; run it with `.venv/bin/python` and no arguments.

Every number is a constant or a default of the code; the words are here. A unit test fails while the
page is not current.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

PAGE: Final = Path(__file__).parent / "reference" / "limits.md"

INTRODUCTION: Final = """\
# Timings and limits

<!-- Written by docs/generate_limits_reference.py. Change the words there, then run it. -->

Every time that something waits for and every bound that something meets, on one page. What can be
set says how; the settings of servers with all their defaults are on [a page of their
own](config.md).
"""


class Row(NamedTuple):
    """One number: where the code has it, what it is, and how it is set."""

    where: str  # module:NAME, or module:Kind.field for a default
    what: str
    how: str = ""


CLIENT: Final = "ariane.client."
SECTIONS: Final[dict[str, tuple[Row, ...]]] = {
    "Sending": (
        Row(
            CLIENT + "settings:SendSettings.timeout",
            "a send, all its attempts together",
            "`timeout=`, of the client, a producer or a call",
        ),
        Row(
            CLIENT + "settings:SendSettings.attempt_timeout",
            "one attempt; when nothing is said, an"
            " even part of `timeout` while another broker could take the next one, else all of it",
            "`attempt_timeout=`",
        ),
        Row(
            CLIENT + "settings:SendSettings.retries",
            "further attempts after one that failed",
            "`retries=`",
        ),
        Row(CLIENT + "send_retries:BUSY_WAIT_S", "first wait for a busy broker; doubles each time"),
        Row(CLIENT + "send_retries:BUSY_WAIT_MAX_S", "longest wait for a busy broker"),
        Row(
            CLIENT + "faults:SLOW_S",
            "an answer slower than this has its broker avoided for a while",
        ),
        Row(
            CLIENT + "settings:SendSettings.message_bytes_max",
            "longest body, and longest batch",
            "`message_bytes_max=`; brokers: `maxMessageSize`",
        ),
        Row(CLIENT + "settings:MESSAGE_BYTES_END", "most that `message_bytes_max` may be"),
        Row(CLIENT + "parcels:PROPERTIES_BYTES_MAX", "properties, tags and keys of a message"),
        Row(CLIENT + "messages:TAG_LENGTH_MAX", "characters of a tag"),
        Row(
            CLIENT + "settings:SendSettings.compress_from_bytes",
            "bodies from here on are compressed",
            "`compress_from_bytes=`, `compression=None`",
        ),
        Row(
            CLIENT + "settings:SendSettings.batch_bytes_max",
            "a batch made by `linger`",
            "`batch_bytes_max=`",
        ),
        Row(
            CLIENT + "settings:SendSettings.batch_count_max",
            "messages of a batch made by `linger`",
            "`batch_count_max=`",
        ),
        Row(
            CLIENT + "sending:SUBMITTED_BYTES_MAX",
            "submitted and not answered; then `submit` waits",
        ),
        Row(CLIENT + "courier:UNANSWERED_BYTES_MAX", "sent and not answered; then sends wait"),
    ),
    "Consuming with handlers and loops": (
        Row(CLIENT + "consuming:CONCURRENCY", "messages handled at a time", "`concurrency=`"),
        Row(
            CLIENT + "consumer_options:ConsumerOptions.timeout_s",
            "a message waits and is worked on here; then it is given to others",
            "`timeout=`",
        ),
        Row(CLIENT + "push_consumer:STUCK_CHECK_S", "between two looks for those that took longer"),
        Row(
            CLIENT + "consumer_options:ConsumerOptions.drain_s",
            "handlers may end when a consumer closes",
            "`drain=`",
        ),
        Row(
            CLIENT + "process_queue:Limits.messages_max",
            "fetched ahead of one queue",
            "`limits=Limits(messages_max=...)`",
        ),
        Row(
            CLIENT + "process_queue:Limits.bytes_max",
            "fetched ahead of one queue",
            "`limits=Limits(bytes_max=...)`",
        ),
        Row(
            CLIENT + "process_queue:Limits.span_max",
            "offsets from the oldest unfinished message on",
            "`limits=Limits(span_max=...)`",
        ),
        Row(
            CLIENT + "consumer_options:ConsumerOptions.pull_count_max",
            "messages of a pull",
            "`pull_count_max=`; brokers: `maxTransferCountOnMessageInMemory`",
        ),
        Row(CLIENT + "pulling:BYTES_MAX", "bytes of a pull"),
        Row(
            CLIENT + "consumer_options:ConsumerOptions.pull_interval_s",
            "after a pull that brought something",
            "`pull_interval=`",
        ),
        Row(CLIENT + "pulling:SUSPEND_S", "a broker holds a pull that finds nothing"),
        Row(CLIENT + "pull_loop:FAILED_S", "after a pull that failed; doubles each time"),
        Row(CLIENT + "pull_loop:FAILED_MAX_S", "longest wait after pulls that failed"),
        Row(CLIENT + "push_consumer:COMMIT_S", "between two commits"),
        Row(
            CLIENT + "membership:INTERVAL_S",
            "between two splits of the queues, when nobody comes or goes",
        ),
        Row(CLIENT + "locks:RENEW_S", "between two renewals of the locks of those that keep order"),
        Row(CLIENT + "process_queue:LOCK_VALID_S", "a lock is believed without a renewal"),
        Row(CLIENT + "reading:SUSPEND_S", "between two tries of a message whose order is kept"),
        Row(
            CLIENT + "tries:RETRIES_MAX",
            "tries after the first one, unless the group says otherwise; then a dead letter",
            "`Retry(max=)`; groups: `mqadmin updateSubGroup -r`",
        ),
        Row(CLIENT + "tries:ASKED_S", "between two looks at what the group says"),
    ),
    "Consuming by pop": (
        Row(CLIENT + "lending:COUNT_MAX", "messages lent at a time"),
        Row(CLIENT + "lending:INVISIBLE_S", "messages are lent for", "`invisible=`"),
        Row(
            CLIENT + "lending:WAIT_S",
            "a broker that has nothing is waited for",
            "`wait=` of `receive`",
        ),
        Row(CLIENT + "pop_consumer:LOOK_S", "between two looks for new brokers and topics"),
        Row("ariane.broker.handlers.pop:INVISIBLE_MS_MAX", "longest time to be lent"),
        Row(
            "ariane.broker.pop.revive:SLOT_MS", "how much later than it is due a message comes back"
        ),
    ),
    "Connections of a client": (
        Row("ariane.remoting.client:CONNECT_TIMEOUT_S", "a connection is made"),
        Row(CLIENT + "session:REQUEST_TIMEOUT_S", "a request that is no send and no pull"),
        Row(CLIENT + "session:ROUTE_INTERVAL_S", "between two looks at a topic's route"),
        Row(CLIENT + "session:HEARTBEAT_INTERVAL_S", "between two heartbeats"),
        Row(
            CLIENT + "session:CLOSE_TIMEOUT_S", "sends that others wait for may end when it closes"
        ),
        Row(CLIENT + "routes:ROUTES_MAX", "topics that a client remembers"),
    ),
    "Broker": (
        Row("ariane.broker.clients:EXPIRY_S", "a client that is silent is forgotten"),
        Row("ariane.broker.locks:LEASE_S", "a lock of a queue without a renewal"),
        Row("ariane.broker.handlers.pull:SUSPEND_MS_MAX", "a pull is held at most"),
        Row("ariane.broker.long_polling:HELD_MAX", "pulls held at a time"),
        Row("ariane.broker.tables:QUEUE_COUNT_MAX", "queues of a topic"),
        Row(
            "ariane.broker.tables:MADE_UNASKED_MAX",
            "topics, and groups, beyond which none is made by need",
        ),
        Row(
            "ariane.broker.flow_control:IN_FLIGHT_BYTES_MAX",
            "answers that peers have not taken; then nobody may pull",
        ),
        Row("ariane.broker.flow_control:DEAF_S", "a peer may take nothing meanwhile"),
        Row("ariane.broker.filters:TAG_COUNT_MAX", "tags of a subscription"),
        Row("ariane.broker.filters.parser:EXPRESSION_BYTES_MAX", "an SQL92 expression"),
        Row("ariane.config:StoreConfig.message_bytes_max", "longest body", "`maxMessageSize`"),
    ),
    "Names and frames": (
        Row("ariane.topics:TOPIC_BYTES_MAX", "a topic's name"),
        Row("ariane.topics:GROUP_BYTES_MAX", "a group's name"),
        Row("ariane.protocol.limits:FRAME_BYTES_MAX", "a frame; a peer that sends more is closed"),
        Row("ariane.protocol.limits:HEADER_BYTES_MAX", "a frame's header, to a server"),
        Row("ariane.protocol.limits:INFLATED_BYTES_MAX", "a compressed body, once inflated"),
    ),
}


def page() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *(_section(title, rows) for title, rows in SECTIONS.items())])


def _section(title: str, rows: tuple[Row, ...]) -> str:
    lines = [f"## {title}", "", "| what | how much | to set it |", "|---|---|---|"]
    lines += [f"| {row.what} | {_shown(row.where)} | {row.how} |" for row in rows]
    return "\n".join([*lines, ""])


def _shown(where: str) -> str:
    module, _, path = where.partition(":")
    kind, _, field = path.partition(".")
    found = getattr(import_module(module), kind)
    value = _default(found, field) if field else found
    name = (field or kind).upper()
    if value is None:
        return "not set"
    if "BYTES" in name:
        return _bytes(int(value))
    if "_MS" in name:
        return _time(value / 1000)
    if name.endswith(("_S", "_S_MAX")) or name in ("TIMEOUT",) or isinstance(value, float):
        return _time(value)
    return f"{value:,}"


def _default(kind: type, field: str) -> float | None:
    fields = getattr(kind, "__struct_fields__", None)
    if fields is not None:
        defaults = reversed(kind.__struct_defaults__)  # type: ignore[attr-defined]
        found: float | None = dict(zip(reversed(fields), defaults, strict=False))[field]
        return found
    value: float | None = kind.__dataclass_fields__[field].default  # type: ignore[attr-defined]
    return value


def _bytes(count: int) -> str:
    for size, unit in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= size and count % size == 0:
            return f"{count // size:,} {unit}"
    return f"{count:,} bytes"


def _time(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds > size and seconds % size == 0:
            return f"{seconds // size:g} {unit}"
    return f"{seconds:g} s" if seconds >= 1 or not seconds else f"{seconds * 1000:g} ms"


if __name__ == "__main__":
    PAGE.write_text(page())
