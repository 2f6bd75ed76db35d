"""Texts of options as values: numbers, sizes, durations, moments, JSON; and errors that help."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeVar

from ariane.errors import ConfigError

S = TypeVar("S", bound=StrEnum)

OF_TABLE: Final = "option."
MOMENT_MS_MAX: Final = 253_402_300_799_999  # the end of the year 9999

_SIZE: Final = re.compile(r"(\d+)\s*([kmgt]?)(i?b)?", re.IGNORECASE)
_SIZE_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|min|m|h|d)?", re.IGNORECASE)
_DURATION_UNITS: Final = {
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}  # and a bare number counts milliseconds, as everywhere in Spark


class OptionReader:
    """Options by name, whatever their case; each is read as what it should be."""

    def __init__(self, options: Mapping[str, str]) -> None:
        # Spark's own map answers in any case but lists lower-cased names; a dict lists what was
        # written. Both come to the same here.
        given = {name.lower(): str(options[name]) for name in options}
        # Those of a table in SQL come a second time, with a prefix.
        self._values = {name.removeprefix(OF_TABLE): value for name, value in given.items()}

    def check_names(self, known: Collection[str], *, ignored: Collection[str], what: str) -> None:
        """Refuse a name that is not known, with the nearest one that is."""
        names = {name.lower(): name for name in known}
        passed_over = {name.lower() for name in ignored}
        for name in sorted(self._values.keys() - names.keys() - passed_over):
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {names[near[0]]}?" if near else f"known are: {', '.join(known)}"
            raise ConfigError(f"{what} has no option {name!r}; {hint}")

    def given(self, *names: str) -> list[str]:
        """Those of the names that were given."""
        return [name for name in names if name.lower() in self._values]

    def text(self, name: str) -> str | None:
        """The option as it was written; None when it was not, or is blank."""
        return self._values.get(name.lower(), "").strip() or None

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{name} must be true or false, not {text!r}")
        return text.lower() == "true"

    def count(self, name: str, *, least: int = 1) -> int | None:
        """A whole number."""
        text = self.text(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdecimal()) or int(text) < least:
            raise ConfigError(f"{name} must be a whole number from {least} up, not {text!r}")
        return int(text)

    def size(self, name: str) -> int | None:
        """Bytes: a number, or one with k, m, g or t behind it."""
        text = self.text(name)
        if text is None:
            return None
        match = _SIZE.fullmatch(text)
        if match is None or int(match[1]) == 0:
            raise ConfigError(f"{name} must be a size such as 1048576, 16m or 1g, not {text!r}")
        return int(match[1]) * _SIZE_UNITS[match[2].lower()]

    def duration_s(self, name: str, *, least_s: float = 0.0) -> float | None:
        """Seconds: milliseconds as a number, or one with ms, s, m, h or d behind it."""
        text = self.text(name)
        if text is None:
            return None
        match = _DURATION.fullmatch(text)
        if match is None:
            raise ConfigError(f"{name} must be a time such as 500ms, 30s or 15m, not {text!r}")
        found_s = int(match[1]) * _DURATION_UNITS[(match[2] or "ms").lower()]
        if found_s < least_s:
            raise ConfigError(f"{name} must be {least_s * 1000:g}ms or longer, not {text!r}")
        return found_s

    def choice(self, name: str, kind: type[S], default: S) -> S:
        """One of a few words."""
        text = self.text(name)
        if text is None:
            return default
        try:
            return kind(text.lower())
        except ValueError:
            words = ", ".join(kind)
            raise ConfigError(f"{name} must be one of {words}, not {text!r}") from None

    def moment_ms(self, name: str) -> int | None:
        """A moment: milliseconds since 1970, or ISO 8601 with its offset from UTC."""
        text = self.text(name)
        if text is None:
            return None
        if text.isascii() and text.isdecimal() and int(text) <= MOMENT_MS_MAX:
            return int(text)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            raise ConfigError(
                f"{name} must be milliseconds since 1970 or a time such as "
                f"2026-11-16T08:00:00+01:00, with its offset from UTC; it is {text!r}"
            )
        return round(moment.timestamp() * 1000)

    def json(self, name: str) -> object:
        """What the option says in JSON; None when it was not given."""
        text = self.text(name)
        if text is None:
            return None
        try:
            value: object = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"{name} is not JSON: {error}; it is {text!r}") from None
        return value
