"""How deep JSON is nested, found without parsing it: recursive parsers must not meet what is."""

from __future__ import annotations

import re
from typing import Final

from ariane.protocol.limits import DEPTH_MAX

# A string without its end takes all the rest with it, so that no input is looked at twice.
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_AS_BRACES: Final = bytes.maketrans(b"[]", b"{}")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


def is_too_deep(text: bytes) -> bool:
    """Whether brackets outside of strings nest deeper than DEPTH_MAX, or do not match."""
    if text.count(b"{") + text.count(b"[") <= DEPTH_MAX:
        return False
    braces = _STRING.sub(b"", text).translate(_AS_BRACES, _NOT_BRACKETS)
    for _ in range(DEPTH_MAX):
        braces = braces.replace(b"{}", b"")  # takes away the innermost level
    return bool(braces)
