"""Keywords that nobody knows: the answer names the nearest one that is known."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches


def refuse_unknown(given: Iterable[str], known: Collection[str]) -> None:
    """Raise TypeError for the first keyword that is not known."""
    for name in given:
        if name not in known:
            near = get_close_matches(name, sorted(known), n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))}"
            raise TypeError(f"there is no keyword {name!r}; {hint}") from None
