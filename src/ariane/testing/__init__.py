"""A real broker within a test: in this process, on a free port, with a clock that can be turned.

Installed as a pytest plug-in: a test that takes the fixture `ariane_broker` has one to itself,
and with `ariane_client` a client of it.
`docs/guides/testing.md` shows how. What is here is imported when it is first used, so that a pytest
run without such a test pays nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ariane.testing.awaiting import AwaitedBroker
    from ariane.testing.embedded import EmbeddedBroker
    from ariane.testing.faults import Fault

__all__ = ["AwaitedBroker", "EmbeddedBroker", "Fault"]

_MODULES: Final = {"AwaitedBroker": "awaiting", "EmbeddedBroker": "embedded", "Fault": "faults"}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'ariane.testing' has no attribute {name!r}")
    value: object = getattr(import_module(f"ariane.testing.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
