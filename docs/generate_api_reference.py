"""Writes docs/reference/api.md from docstrings; run it with `.venv/bin/python` and no arguments.

Which names belong together is said here; everything else is what the code says of itself. A name of
`ariane` that is in no section is an error, and a unit test fails while the page is not current.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import ariane
from ariane.testing import EmbeddedBroker

PAGE: Final = Path(__file__).parent / "reference" / "api.md"

INTRODUCTION: Final = """\
# The client's interface

<!-- Written by docs/generate_api_reference.py from docstrings. Change those, then run it. -->

Every name below is imported from `ariane`. `ariane.sync` has the same names for code that blocks:
the same methods with the same arguments, without `await`, `with` for `async with`. A `Duration` is
seconds or a `timedelta`; a moment is a `datetime`, local time when it has no zone. What each is
good for is in the [guides](../guides/README.md).
"""

SECTIONS: Final = {
    "The client": ["Client"],
    "Sending": [
        "Producer", "Message", "SendReceipt", "SendStatus", "Transaction", "TransactionState",
        "Selector", "by_hash", "MessageQueue",
    ],
    "Messages that come": ["Readable", "StoredMessage", "PolledMessage", "ReceivedMessage"],
    "Consuming": [
        "Subscription", "PushConsumer", "PopConsumer", "SimpleConsumer", "LitePullConsumer",
        "PullConsumer", "Pulled", "PullStatus", "Start", "Retry", "RetryLater", "Reject", "Limits",
        "Strategy", "strategies",
    ],
    "Doing things once": ["Dedup", "MemoryStore", "SqliteStore", "RedisStore"],
    "Around sends and handlers": ["Middleware", "Outgoing"],
    "Administration": [
        "Admin", "GroupLag", "QueueLag", "QueueMove", "Member", "QueueStats", "TopicRoute", "Track",
        "TrackType", "MessageType",
    ],
    "Errors": [
        "ArianeError", "ClientError", "RequestTimeout", "ConnectionLost", "RouteNotFound",
        "RequestFailed", "BrokerBusy", "BrokerUnavailable", "AccessDenied", "UnknownTopic",
        "UnknownGroup", "MessageRefused", "InvalidArgument", "InvalidMessage", "UnreadableBody",
    ],
}  # fmt: skip
# What brokers and the client's own parts call.
INNER: Final = frozenset({
    "begin_close", "consume_directly", "give_back", "is_closing", "is_orderly", "handle", "holder",
    "inflated_body", "may_handlers_await", "message_kind", "offsets", "parcel_alone", "rebalance",
    "reset", "running_info", "session", "subscriptions",
})  # fmt: skip
# Others are made by a client's methods, or are described by their fields.
MADE_BY_HAND: Final = frozenset({
    "Client", "Dedup", "EmbeddedBroker", "MemoryStore", "RedisStore", "RetryLater", "SqliteStore",
})  # fmt: skip
LINE: Final = 100
FIELD: Final = re.compile(r"^    (\w+): ([^=#]+?)(?: = (.+?))?(?:  # (.*))?$", re.MULTILINE)


def page() -> str:
    """The whole page."""
    missing = {*ariane.__all__} - {"sync"} - {name for names in SECTIONS.values() for name in names}
    assert not missing, f"say in SECTIONS where these belong: {sorted(missing)}"
    parts = [INTRODUCTION]
    for title, names in SECTIONS.items():
        parts.append(f"## {title}\n")
        parts += [_described(name, getattr(ariane, name)) for name in names]
    parts += ["## In tests\n", "From `ariane.testing`; see [testing](../guides/testing.md).\n"]
    parts.append(_described("EmbeddedBroker", EmbeddedBroker))
    return "\n".join(parts)


def _described(name: str, value: Any) -> str:
    if inspect.ismodule(value):
        return f"### {name}\n\n{_text(value)}\n"
    if not inspect.isclass(value):
        if not inspect.isfunction(value):
            return f"### {name}\n\n`{_shown(value)}`\n"
        return f"### {name}\n\n```python\n{_signature(name, value)}\n```\n\n{_text(value)}\n"
    lines = [f"### {name}\n", _text(value), ""]
    if issubclass(value, Enum):
        lines += ["Values: " + ", ".join(f"`{member.name}`" for member in value) + ".", ""]
        return "\n".join(lines)
    if issubclass(value, Exception):
        bases = ", ".join(f"`{base.__name__}`" for base in value.__bases__)
        if _is_made_by_hand(value):
            lines += [f"```python\n{_signature(name, value)}\n```", ""]
        return "\n".join([*lines, f"A kind of {bases}.", ""])
    if fields := list(_fields(value)):
        lines += ["| field | type | default | |", "|---|---|---|---|", *fields, ""]
    elif _is_made_by_hand(value):
        lines += [f"```python\n{_signature(name, value)}\n```", ""]
    lines += _members(value)
    return "\n".join(lines)


def _members(kind: type) -> list[str]:
    lines = []
    for name, member in _own(kind).items():
        if isinstance(member, property | cached_property):
            lines += [f"**`.{name}`** {_text(member)}", ""]
            continue
        value = getattr(kind, name)
        is_async = inspect.iscoroutinefunction(inspect.unwrap(value))
        signature = _signature(f"await {name}" if is_async else name, value)
        lines += [f"```python\n{signature}\n```\n", _text(value), ""]
    return lines


def _own(kind: type) -> dict[str, Any]:
    """Public members in the order of their definition, those of base classes last."""
    found: dict[str, Any] = {}
    for base in kind.__mro__:
        if not base.__module__.startswith("ariane") or base.__module__.startswith("ariane.kernel"):
            continue
        for name, member in vars(base).items():
            is_method = isinstance(member, property | cached_property | staticmethod) or callable(
                getattr(kind, name, None)
            )
            is_known = name.startswith("_") or name in INNER or name in _field_names(kind)
            if is_method and not is_known and not inspect.isclass(member):
                found.setdefault(name, member)
    return found


def _fields(kind: type) -> Iterator[str]:
    names = _field_names(kind)
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("ariane") and names:
            for name, annotation, default, words in FIELD.findall(inspect.getsource(base)):
                if name in names and name in vars(base).get("__annotations__", {}):
                    value = f"`{_escaped(default)}`" if default else ""
                    yield f"| `{name}` | `{_escaped(annotation)}` | {value} | {words} |"


def _field_names(kind: Any) -> list[str]:
    names = getattr(kind, "__struct_fields__", None) or getattr(kind, "__dataclass_fields__", ())
    return [name for name in names if not name.startswith("_")]


def _is_made_by_hand(kind: type) -> bool:
    return kind.__name__ in MADE_BY_HAND


def _signature(name: str, value: Any) -> str:
    signature, parts, has_star = inspect.signature(value), [], False
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not has_star:
            parts.append("*")
        has_star |= parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        parts.append(_parameter(parameter))
    returned = signature.return_annotation
    is_told = not inspect.isclass(value) and returned is not signature.empty
    arrow = f" -> {_shown(returned)}" if is_told else ""
    text = f"{name}({', '.join(parts)}){arrow}"
    if len(text) <= LINE:
        return text
    return f"{name}(\n{''.join(f'    {part},{chr(10)}' for part in parts)}){arrow}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    annotation = parameter.annotation
    text = stars + parameter.name
    if annotation is not parameter.empty:
        text += f": {_shown(annotation)}"
    if parameter.default is parameter.empty:
        return text
    return f"{text} = {_default(parameter.default)}"


def _default(value: Any) -> str:
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    return value.__name__ if inspect.isfunction(value) else repr(value)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else getattr(value, "__name__", str(value))


def _escaped(text: str) -> str:
    return text.strip().replace("|", "\\|")


def _text(value: Any) -> str:
    """The docstring; an example in it as code."""
    text = inspect.getdoc(value) or ""
    paragraphs = []
    for paragraph in text.split("\n\n"):
        is_code = re.match(r"(async )?with |with |if __name__|\w+ = |client\.", paragraph)
        paragraphs.append(f"```python\n{paragraph}\n```" if is_code else paragraph)
    return "\n\n".join(paragraphs)


if __name__ == "__main__":
    PAGE.write_text(page())
