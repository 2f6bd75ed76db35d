"""Sees what a server survives: tracebacks that were logged, in this process or in one's output.

A test that provokes one says so by `@pytest.mark.provokes("words", ...)`: each traceback must have
some of the words, and each of the words must be in a traceback.
"""

import logging
import re
from collections.abc import Sequence

# What Python and asyncio print of an exception that nobody took.
TRACEBACK = re.compile(
    r"Traceback \(most recent call last\)|^Exception ignored in|exception was never retrieved"
    r"|^Fatal Python error|^Exception in callback|^Segmentation fault|was never awaited"
    r"|^Task was destroyed but it is pending",
    re.MULTILINE,
)
SHOWN = 3  # tracebacks; more would hide the first
HANDLER = "handler failed group="  # what a user's handler raised is the user's, and is retried


class Watch(logging.Handler):
    """Keeps what is logged with a traceback, and whatever asyncio says of things forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        self._found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        is_traceback = bool(record.exc_info and record.exc_info[0])
        is_handlers = record.levelno < logging.ERROR and str(record.msg).startswith(HANDLER)
        is_asyncios = record.levelno >= logging.ERROR and record.name == "asyncio"
        if (is_traceback and not is_handlers) or is_asyncios:
            self._found.append(self.format(record))

    def taken(self) -> list[str]:
        """What was seen since the last call."""
        found, self._found = self._found, []
        return found


def complaint(found: Sequence[str], expected: Sequence[str]) -> str | None:
    """What is wrong with these tracebacks where those words were expected; None if nothing."""
    unexpected = [text for text in found if not any(words in text for words in expected)]
    if unexpected:
        more = f"\n({len(unexpected) - SHOWN} more)" if len(unexpected) > SHOWN else ""
        return "survived, but nobody foresaw it:\n" + "\n".join(unexpected[:SHOWN]) + more
    unseen = [words for words in expected if not any(words in text for text in found)]
    if unseen:
        return f"the test says that it provokes these, and nothing was logged: {unseen}"
    return None


def refuse_tracebacks(printed: str | bytes, *, by: object) -> None:
    """Fail if what a command printed tells of an exception nobody took."""
    text = printed.decode(errors="replace") if isinstance(printed, bytes) else printed
    if fault := complaint(tracebacks_in(text), ()):
        raise AssertionError(f"{by} {fault}")


def tracebacks_in(printed: str) -> list[str]:
    """The pieces of a log that tell of an exception nobody took, each with the line before it.

    A piece ends where a line begins that is neither indented nor the exception's own.
    """
    found = []
    lines = printed.splitlines()
    number = 0
    while number < len(lines):
        if TRACEBACK.search(lines[number]) is None:
            number += 1
            continue
        first = max(0, number - 1)
        while number < len(lines) and not re.match(r"\d{4}-\d\d-\d\d |ready\b", lines[number]):
            number += 1
        found.append("\n".join(lines[first:number]))
        number += 1
    return found
