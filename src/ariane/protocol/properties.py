"""The properties of a message as text: `name 0x01 value 0x02 name 0x01 value 0x02 ...`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ariane.errors import ProtocolError

NAME_END: Final = "\x01"
VALUE_END: Final = "\x02"

# The names that more than one module knows.
DELAY: Final = "DELAY"
HALF: Final = "TRAN_MSG"
KEYS: Final = "KEYS"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
PRODUCER_GROUP: Final = "PGROUP"
REAL_QUEUE_ID: Final = "REAL_QID"
REAL_TOPIC: Final = "REAL_TOPIC"
RETRY_TOPIC: Final = "RETRY_TOPIC"
SHARDING_KEY: Final = "__SHARDINGKEY"
TAGS: Final = "TAGS"
UNIQUE_KEY: Final = "UNIQ_KEY"
WAIT: Final = "WAIT"


def encode_properties(properties: Mapping[str, str]) -> str:
    """Text that every client reads; raises ProtocolError for what cannot be told apart again."""
    parts: list[str] = []
    for name, value in properties.items():
        if not name or NAME_END in name or VALUE_END in name or VALUE_END in value:
            raise ProtocolError(
                f"the property {name!r} cannot be sent: a name must not be empty, and neither name "
                f"nor value may hold the separators U+0001 and U+0002"
            )
        parts += name, NAME_END, value, VALUE_END
    return "".join(parts)


def decode_properties(text: str) -> dict[str, str]:
    """Names and values; an entry without a name or a value is skipped, as Java does."""
    properties: dict[str, str] = {}
    for entry in text.split(VALUE_END):
        name, _, value = entry.partition(NAME_END)
        if name and value:
            properties[name] = value
    return properties


def stored_properties_of(data: bytes) -> dict[str, str]:
    """Names and values of a record or a batch entry, where nobody has checked the bytes.

    What is not UTF-8 in them is replaced: a message in another encoding is read like any other.
    """
    return decode_properties(data.decode(errors="replace"))


def amended_properties(text: bytes, changes: Mapping[str, str | None]) -> bytes:
    """The text with properties set, at its end, or removed (None); the others byte for byte."""
    names = {name.encode() for name in changes}
    entries = [
        entry
        for entry in text.split(VALUE_END.encode())
        if entry and entry.partition(NAME_END.encode())[0] not in names
    ]
    entries += [
        f"{name}{NAME_END}{value}".encode() for name, value in changes.items() if value is not None
    ]
    return b"".join(entry + VALUE_END.encode() for entry in entries)
