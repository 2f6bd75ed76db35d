"""How callers say times: how long as seconds or a `timedelta`, when as a `datetime`.

A `datetime` without a zone is local time.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, ParamSpec, TypeVar, cast

Duration = float | timedelta  # seconds, or a timedelta

P = ParamSpec("P")
R = TypeVar("R")


def seconds_of(duration: Duration) -> float:
    """A duration in seconds."""
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


def milliseconds_of(moment: datetime | int) -> int:
    """A moment as brokers count time. Milliseconds themselves were taken before, and still are."""
    if isinstance(moment, int):
        deprecated("a moment in milliseconds is an old spelling; give a datetime")
        return moment
    return round(moment.timestamp() * 1000)


def renamed(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let keywords that have another name now be given by their old ones, with a warning."""

    def new_names(named: dict[str, Any]) -> dict[str, Any]:
        for old in names.keys() & named.keys():
            unit = "a datetime" if old.endswith("_ms") else "seconds or a timedelta"
            deprecated(f"{old}= is called {names[old]}= now, {unit}")
        return {names.get(name, name): value for name, value in named.items()}

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        call: Any = function
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaiting(*arguments: Any, **named: Any) -> Any:
                return await call(*arguments, **(new_names(named) if named else named))

            return cast("Callable[P, R]", awaiting)

        @functools.wraps(function)
        def calling(*arguments: Any, **named: Any) -> Any:
            return call(*arguments, **(new_names(named) if named else named))

        return cast("Callable[P, R]", calling)

    return decorate


def deprecated(what: str) -> None:
    """Warn that an old spelling will not be taken for ever."""
    warnings.warn(f"{what}; the old spelling goes with the next release", DeprecationWarning, 4)
