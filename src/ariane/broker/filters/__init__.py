"""Which messages a consumer wants: by tag, or by an expression over properties (SQL92).

Everything here is pure: text goes in, and a `MessageFilter` comes out, or BadFilter is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ariane.broker.filters.compiler import compiled
from ariane.broker.filters.parser import parse
from ariane.errors import BadFilter
from ariane.protocol.message import tags_code_of
from ariane.store.filters import Filter

TAG: Final = "TAG"
SQL92: Final = "SQL92"
TAG_TYPES: Final = (None, "", TAG)
TAG_COUNT_MAX: Final = 1_024


class MessageFilter(NamedTuple):
    """What a read lets through: messages of these tags, or for which this expression is true."""

    tag_codes: frozenset[int] | None = None  # None: every tag
    expression: Filter | None = None

    @property
    def accepts(self) -> Callable[[bytes], bool] | None:
        """What decides by a message's properties; None when they do not matter."""
        return None if self.expression is None else self.expression.accepts


EVERYTHING: Final = MessageFilter()


def of_expression(expression: str, expression_type: str | None) -> MessageFilter:
    """The filter that a request brings along; raises BadFilter."""
    if expression_type in TAG_TYPES:
        return of_tags(expression)
    return MessageFilter(expression=compile_expression(expression, str(expression_type)))


def of_tags(expression: str) -> MessageFilter:
    """The filter of `A || B`; of `*` and of nothing, everything. Raises BadFilter."""
    if expression in ("", "*"):
        return EVERYTHING
    tags = [tag for tag in expression.split("||") if tag.strip()]
    if not 0 < len(tags) <= TAG_COUNT_MAX:
        raise BadFilter(f"{len(tags)} tags in a subscription; it may have 1 to {TAG_COUNT_MAX}")
    return MessageFilter(frozenset(tag_codes_of(expression)) or None)


def tag_codes_of(expression: str) -> list[int]:
    """The codes of the tags in `A || B`; none for an expression that takes everything."""
    tags = [tag.strip() for tag in expression.split("||")]
    return [] if "*" in tags else [tags_code_of(tag) for tag in tags if tag]


def compile_expression(expression: str, expression_type: str) -> Filter:
    """An expression over properties, ready to be asked; raises BadFilter."""
    if expression_type != SQL92:
        raise BadFilter(f"expressions of type {expression_type!r}; there are {TAG} and {SQL92}")
    return compiled(parse(expression))
