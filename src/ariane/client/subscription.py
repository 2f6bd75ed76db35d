"""What a consumer wants of a topic: everything, some tags, or what an SQL92 expression accepts.

Brokers compare hashes of tags, and two tags may share one, so a consumer compares the words again.
Expressions are the brokers' business alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from ariane.client.records import Record
from ariane.errors import InvalidArgument
from ariane.protocol.bodies import SubscriptionData
from ariane.protocol.message import tags_code_of

EVERYTHING: Final = "*"
TAG: Final = "TAG"
SQL92: Final = "SQL92"

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True)
class Filter:
    """Which messages of a topic are wanted."""

    expression: str = EVERYTHING
    kind: str = TAG
    tags: frozenset[str] = frozenset()  # none: all

    def accepted(self, messages: list[R]) -> list[R]:
        """Those of the messages that are really wanted."""
        if not self.tags:
            return messages
        return [message for message in messages if message.find(b"TAGS") in self.tags]


def filter_of(*, tags: str = EVERYTHING, sql: str | None = None) -> Filter:
    """The filter that the caller's words mean; raises ClientError when they mean none."""
    if sql is not None:
        if tags != EVERYTHING:
            raise InvalidArgument("a subscription has tags or an SQL expression, not both")
        if not sql.strip():
            raise InvalidArgument("the SQL expression is empty; leave it out to get every message")
        return Filter(sql, SQL92)
    if tags.strip() in ("", EVERYTHING):
        return Filter()
    wanted = frozenset(tag.strip() for tag in tags.split("||")) - {""}
    if not wanted:
        raise InvalidArgument(f"no tag in {tags!r}; write it like 'paid || new'")
    return Filter(tags, TAG, wanted)


def subscription_of(topic: str, wanted: Filter, version: int) -> SubscriptionData:
    """The filter as heartbeats tell of it; `version` is the wall clock when it was made."""
    return SubscriptionData(
        topic=topic,
        expression=wanted.expression,
        expression_type=wanted.kind,
        tags=sorted(wanted.tags),
        tag_codes=sorted({tags_code_of(tag) for tag in wanted.tags}),
        version=version,
    )


def topics_of(topics: str | Sequence[str]) -> list[str]:
    """The topics that a caller named, one or many."""
    return [topics] if isinstance(topics, str) else list(topics)
