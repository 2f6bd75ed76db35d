"""Messages that are given up: why, and who hears of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from ariane.client.delivery import failure_of, is_async, on_thread
from ariane.client.received import ReceivedMessage
from ariane.errors import ProtocolError, UnreadableBody

REASON: Final = "DEAD_LETTER_REASON"  # the property that says why no try would have helped
REASON_LENGTH_MAX: Final = 500

log = logging.getLogger("ariane.client")

DeadLetterHook = Callable[[ReceivedMessage], Any]


class Reject(Exception):
    """Raised by a handler to make a dead letter of its message at once: no try will succeed.

    A handler of batches makes dead letters of all that it has not settled.
    """


def rejection(message: ReceivedMessage, error: Exception) -> str | None:
    """Why the message need not be tried again; None when that may help."""
    if isinstance(error, Reject):
        return str(error) or "rejected"
    if isinstance(error, UnreadableBody) and error.about is message:
        return str(error)
    if isinstance(error, ProtocolError):
        try:
            _ = message.body
        except ProtocolError as unreadable:
            return f"the body cannot be inflated: {unreadable}"
    return None


def reason_text(reason: str) -> str:
    """The reason as a property holds it."""
    text = "".join(character if character.isprintable() else " " for character in reason)
    return text[:REASON_LENGTH_MAX]


async def mourn(hook: DeadLetterHook | None, group: str, message: ReceivedMessage) -> None:
    """Tell whoever wants to know of a dead letter."""
    log.warning("dead letter group=%s %r", group, message)
    if hook is not None:
        try:
            # A plain function may block, or wait for this very loop: it has a thread.
            await (hook(message) if is_async(hook) else on_thread(hook, message))
        except BaseException as error:  # the letter is dead whatever the hook thinks of it
            log.error("dead-letter hook failed group=%s", group, exc_info=failure_of(error))
