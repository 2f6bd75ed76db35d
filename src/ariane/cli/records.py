"""Stored messages as commands show them."""

from __future__ import annotations

import base64
from typing import Any

from ariane.cli.output import bytes_text, say, time_text, visible
from ariane.errors import ProtocolError
from ariane.protocol.message import StoredMessage


def view_of(message: StoredMessage) -> dict[str, Any]:
    """Everything about a message, for JSON; a body that is not text is given in base64."""
    data = body_of(message)
    try:
        body = {"body": data.decode()}
    except UnicodeDecodeError:
        body = {"body_base64": base64.b64encode(data).decode()}
    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "message_id": message.message_id,
        "offset_message_id": message.offset_message_id,
        "tags": message.tags,
        "keys": message.keys,
        "born_at_ms": message.born_at_ms,
        "born_host": _host_text(message.born_host),
        "stored_at_ms": message.stored_at_ms,
        "store_host": _host_text(message.store_host),
        "reconsume_times": message.reconsume_times,
        "properties": message.properties,
        **body,
    }


def line_of(message: StoredMessage) -> str:
    """A message on one line, for a live view."""
    marks = " ".join(filter(None, [message.tags and f"#{message.tags}", *message.keys]))
    place = f"{message.queue_id}:{message.queue_offset}"
    return "  ".join(
        filter(
            None,
            [time_text(message.stored_at_ms), place, visible(marks), bytes_text(body_of(message))],
        )
    )


def body_of(message: StoredMessage) -> bytes:
    """The body as its producer had it; as it is stored when it cannot be inflated."""
    try:
        return message.body
    except ProtocolError:
        return message.stored_body


def say_message(message: StoredMessage) -> None:
    """A message over several lines, one fact on each."""
    facts = view_of(message)
    facts["born_at_ms"] = time_text(message.born_at_ms)
    facts["stored_at_ms"] = time_text(message.stored_at_ms)
    facts["tags"] = message.tags or ""
    facts["keys"] = " ".join(message.keys)
    facts["properties"] = ", ".join(f"{k}={v}" for k, v in message.properties.items())
    width = max(map(len, facts))
    for name, value in facts.items():
        say(f"{name:<{width}}  {visible(str(value))}".rstrip())


def _host_text(host: tuple[str, int]) -> str:
    return f"{host[0]}:{host[1]}"
