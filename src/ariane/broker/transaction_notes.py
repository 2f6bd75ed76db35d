"""Notes of ended transactions: gathered for a while, then written to the operation queue as one.

A note that is not written yet is lost with the process. That costs nothing but a look at the log:
the committed message is there, and a rollback is asked about again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from ariane.broker import placing
from ariane.broker.half_messages import operation_of
from ariane.broker.state import BrokerState
from ariane.clock import Timer
from ariane.errors import StoreError

LOGGER: Final = logging.getLogger("ariane.broker")

RETRY_S: Final = 1.0  # before notes that could not be written are tried again


class Notes:
    """Half offsets that ended and are in no note yet; `on_written` hears (note, half offsets)."""

    def __init__(self, state: BrokerState, on_written: Callable[[int, list[int]], None]) -> None:
        self._state = state
        self._on_written = on_written
        self._half_offsets: list[int] = []
        self._size = 0  # bytes of a note with all of them
        self._timer: Timer | None = None
        self._is_failing = False  # the next try is by the timer

    def add(self, half_offsets: Iterable[int]) -> None:
        """Note some more, now if there are enough, or soon."""
        for half_offset in half_offsets:
            self._half_offsets.append(half_offset)
            self._size += _size_of(half_offset)
        config = self._state.config
        while self._size > config.operation_bytes_max and not self._is_failing:
            self._write_one()
        if self._half_offsets and self._timer is None:
            self._arm(config.operation_interval_ms / 1000)

    def stop(self) -> None:
        """Write what there is, for the last time."""
        self.write()
        self._disarm()

    def write(self) -> None:
        """Write everything now; what cannot be written is tried again later."""
        self._disarm()
        self._is_failing = False
        while self._half_offsets and not self._is_failing:
            self._write_one()

    def _write_one(self) -> None:
        state = self._state
        half_offsets = self._for_one_note()
        note = operation_of(half_offsets, host=state.store_host, now_ms=state.clock.wall_ms())
        try:
            placed = placing.place(state, note)
        except StoreError as error:
            LOGGER.warning("ended transactions not noted yet reason=%s", error)
            self._is_failing = True
            self._disarm()
            self._arm(RETRY_S)
            return
        del self._half_offsets[: len(half_offsets)]
        self._size -= len(note.body)
        self._on_written(placed.queue_offset, half_offsets)

    def _for_one_note(self) -> list[int]:
        """As many as are allowed together, but at least one."""
        size, size_max = 0, self._state.config.operation_bytes_max
        for count, half_offset in enumerate(self._half_offsets):
            if size >= size_max:
                return self._half_offsets[:count]
            size += _size_of(half_offset)
        return list(self._half_offsets)

    def _arm(self, delay_s: float) -> None:
        self._timer = self._state.timers.after(delay_s, self.write)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _size_of(half_offset: int) -> int:
    return len(str(half_offset)) + 1  # with its comma
