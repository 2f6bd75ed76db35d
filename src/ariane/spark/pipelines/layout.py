"""Where the files of a lake lie and how they are made: the same whoever writes them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, unquote

MANIFEST: Final = "_manifest"
STAGING: Final = "_staging"
COMPRESSION: Final = "zstd"
DAY_US: Final = 86_400_000_000


def job_of(query_id: str, batch_id: int) -> str:
    """What the files of an archived batch are named after; the same when it is run again."""
    return f"{query_id}-{batch_id:010d}"


def day_of(stored_us: int) -> str:
    """The day of a message by its store time, in UTC."""
    return datetime.fromtimestamp(stored_us // DAY_US * DAY_US // 1_000_000, UTC).date().isoformat()


def directory_of(topic: str, day: str) -> str:
    """The directory of a topic's day, escaped as Spark does it."""
    return f"topic={quote(topic, safe='|')}/day={day}"


def topic_and_day_of(path: str) -> tuple[str, str]:
    """What a file's directories say of it."""
    *_, topic, day, _ = path.split("/")
    return unquote(topic.partition("=")[2]), unquote(day.partition("=")[2])
