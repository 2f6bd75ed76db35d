"""Telling the members of a consumer group that others came or went, or that its topics changed.

A change is told in the loop's next turn, and what follows within a second is told together at the
end of it: a thousand members that come and go cost each of them one notice a second, not one for
each change. Members are told a slice at a time, so that a large group holds nobody else up.

Invariant: after a change every member of the group gets a notice that was sent after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from ariane.clock import Timers
from ariane.codes import RequestCode
from ariane.protocol.command import request
from ariane.protocol.headers.groups import ConsumerGroupHeader
from ariane.remoting.connection import Connection

if TYPE_CHECKING:
    from ariane.broker.clients import ConsumerGroup

TICK_S: Final = 1.0  # at most one notice of a group to a member in that time
SLICE: Final = 100  # members told in one turn of the loop, some 10 us each


class Notices:
    """What is to be told to the members of the groups in a table."""

    def __init__(self, groups: Mapping[str, ConsumerGroup], timers: Timers) -> None:
        self.may_notify: Callable[[str], bool] = lambda group: True
        self._groups = groups
        self._timers = timers
        self._has_changed: dict[str, bool] = {}  # by group: again since it was told a moment ago
        self._untold: deque[tuple[str, bytes, Connection]] = deque()

    def changed(self, group: str) -> None:
        """Have the group's members told."""
        if group in self._has_changed:
            self._has_changed[group] = True
        else:
            self._has_changed[group] = False
            self._timers.after(0.0, lambda: self._begin(group))

    def _begin(self, name: str) -> None:
        """Line the members up, and listen for further changes until the tick has passed."""
        self._has_changed[name] = False
        self._timers.after(TICK_S, lambda: self._end(name))
        group = self._groups.get(name)
        if group is None or group.is_broadcast or not self.may_notify(name):
            return
        header = ConsumerGroupHeader(group=name)
        frame = request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, one_way=True).encode()
        is_idle = not self._untold
        self._untold += [(name, frame, connection) for connection in group.members]
        if is_idle:
            self._tell_some()

    def _end(self, name: str) -> None:
        if self._has_changed[name]:
            self._begin(name)
        else:
            del self._has_changed[name]

    def _tell_some(self) -> None:
        for _ in range(min(SLICE, len(self._untold))):
            name, frame, connection = self._untold.popleft()
            group = self._groups.get(name)
            if group is not None and connection in group.members:
                connection.send_bytes(frame)
        if self._untold:
            self._timers.after(0.0, self._tell_some)
