"""Work that waits until the log, as it is now, is on the platter."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ariane.store.store import Store


class Flushed:
    """Runs jobs in order, each once everything written before it was given is flushed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        store.on_advance.append(self._on_advance)

    def run(self, job: Callable[[], None]) -> None:
        """Run a job when the log is flushed up to its present end; never, if that fails."""
        self._waiting.append((self._store.written, job))
        self._store.flush()
        self._on_advance()

    def _on_advance(self) -> None:
        if self._store.read_only_reason is not None:
            # A log that could not be written ends where it did before: what a job rests on is lost,
            # though all that is left of the log is on the platter.
            return
        while self._waiting and self._waiting[0][0] <= self._store.flushed:
            self._waiting.popleft()[1]()
