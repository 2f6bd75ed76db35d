"""Topic attributes: which there are, what they may be, the `+key=value,-key` that edits them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ariane.errors import InvalidParameter

MESSAGE_TYPES: Final = (
    "UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "MIXED",
)  # fmt: skip
CHOICES: Final = {
    "message.type": MESSAGE_TYPES,
    "queue.type": ("SimpleCQ",),  # the store keeps no batch consume queues
    "cleanup.policy": ("DELETE",),  # nor compacted topics
}
RESERVE_TIME: Final = "reserve.time"  # milliseconds; -1: as the broker's other topics


def changed_attributes(current: Mapping[str, str], changes: str) -> dict[str, str]:
    """The attributes after `+key=value,-key` changes, or InvalidParameter saying what is wrong."""
    attributes = dict(current)
    for change in filter(None, (part.strip() for part in changes.split(","))):
        key, has_value, value = change[1:].partition("=")
        if change[0] == "+" and has_value:
            check_attribute(key, value)
            attributes[key] = value
        elif change[0] == "-" and not has_value:
            attributes.pop(key, None)
        else:
            raise InvalidParameter(f"topic attribute change {change!r} is not +key=value or -key")
    return attributes


def changes_of(attributes: Mapping[str, str]) -> str:
    """The changes that a map of attributes asks for; its keys may carry their sign already."""
    signed = {key if key[:1] in ("+", "-") else f"+{key}": text for key, text in attributes.items()}
    return ",".join(f"{key}={text}" if key[0] == "+" else key for key, text in signed.items())


def check_attribute(key: str, value: str) -> None:
    """Raise InvalidParameter unless the attribute exists and takes the value."""
    if key == RESERVE_TIME:
        if not value.removeprefix("-").isdecimal() or int(value) < -1:
            raise InvalidParameter(f"topic attribute {key}={value} is not -1 or milliseconds")
    elif key not in CHOICES:
        known = ", ".join(sorted([*CHOICES, RESERVE_TIME]))
        raise InvalidParameter(f"topic attribute {key!r} is not known; there are {known}")
    elif value not in CHOICES[key]:
        raise InvalidParameter(
            f"topic attribute {key}={value} is not supported; it may be {', '.join(CHOICES[key])}"
        )
