"""Attributes of groups: the one there is, and the `+key` and `-key` of a request that edit them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ariane.errors import InvalidParameter

PRIORITY_FACTOR: Final = "priority.factor"
PERCENT_MAX: Final = 100


def changed_attributes(current: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """The attributes after changes, whose keys may carry a sign; or InvalidParameter."""
    attributes = dict(current)
    for signed, value in changes.items():
        key = signed[1:] if signed[:1] in ("+", "-") else signed
        if signed.startswith("-"):
            attributes.pop(key, None)
        else:
            check_attribute(key, value)
            attributes[key] = value
    return attributes


def check_attribute(key: str, value: str) -> None:
    """Raise InvalidParameter unless the attribute exists and takes the value."""
    if key != PRIORITY_FACTOR:
        raise InvalidParameter(f"group attribute {key!r} is not known; there is {PRIORITY_FACTOR}")
    if not value.isascii() or not value.isdecimal() or int(value) > PERCENT_MAX:
        raise InvalidParameter(f"group attribute {key}={value} is not 0 to {PERCENT_MAX}")


def priority_percent(attributes: Mapping[str, str]) -> int:
    """Of a hundred pops of a topic with priorities, how many go by them."""
    text = attributes.get(PRIORITY_FACTOR, "")
    return int(text) if text.isascii() and text.isdecimal() else PERCENT_MAX
