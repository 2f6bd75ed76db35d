"""What a fork leaves of a client: nothing that two processes could share.

Sockets, threads, timers and ids belong to the process that made them. A forked child that uses a
client finds it as new: it opens again by itself, under a name of its own.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """Something that must not be shared with a child."""

    def forked(self) -> None:
        """This is the child: forget what belongs to the parent, and touch none of it."""
        ...


_alive: WeakSet[Forkable] = WeakSet()


def watch(what: Forkable) -> None:
    """Tell it, in every child that is forked while it lives."""
    _alive.add(what)


def _tell() -> None:
    for what in list(_alive):
        what.forked()


os.register_at_fork(after_in_child=_tell)
