"""The blocking client, under the name it is looked for: `from ariane.sync import Client`.

Every name of `ariane` is here too: what has a blocking twin is that, the rest is the same.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

import ariane

__all__ = [name for name in ariane.__all__ if name != "sync"]  # as in sync.pyi

_TWINS: Final = {
    "Admin": "ariane.client.sync_admin",
    "Client": "ariane.client.sync",
    "LitePullConsumer": "ariane.client.sync",
    "PopConsumer": "ariane.client.sync",
    "Producer": "ariane.client.sync",
    "PullConsumer": "ariane.client.sync",
    "PushConsumer": "ariane.client.sync",
    "ReceivedMessage": "ariane.client.sync",
    "SimpleConsumer": "ariane.client.sync",
    "Subscription": "ariane.client.sync",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'ariane.sync' has no attribute {name!r}")
    value: object = getattr(import_module(_TWINS.get(name, "ariane")), name)
    globals()[name] = value
    return value
