"""The slots of a timer wheel, brought back to what the units in the timer log say.

A kill or a power cut leaves slots that were written after units which are not in the timer log any
more: their chains are followed back. Where a chain is broken, its slot is marked, emptied, and put
together from the units again; the mark is in the file, so that this may be cut short at any point.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from ariane.store.clockwork import Clockwork
from ariane.store.wheel import TimerLog, Wheel, wheel_chunk_bytes

NOWHERE: Final = -1
DELETES: Final = 4  # a kind of unit: it takes a message away

_SLOT: Final = struct.Struct(">qqqii")  # time, first unit, last unit, messages, mark
_UNUSED: Final = bytes(wheel_chunk_bytes)


class _Slot(NamedTuple):
    number: int
    time: int  # in units of the wheel's precision
    first: int
    last: int
    message_count: int
    is_marked: int


def oldest_ms(wheel: Wheel) -> int | None:
    """The earliest time of any slot, over or not; None when the wheel was never used."""
    times = (slot.time for slot in _slots(wheel, 1))
    oldest = min(times, default=None)
    return None if oldest is None else oldest * wheel.precision_ms


@dataclass(slots=True)
class SlotRepair:
    """One wheel whose slots are brought back."""

    clockwork: Clockwork

    def restore(self, cut: int) -> bool:
        """Let slots hold what the units below `cut` say; False when those are damaged."""
        clockwork, wheel, units = self.clockwork, self.clockwork.wheel, self.clockwork.units
        pending, broken = 0, dict[int, _Slot]()
        for slot in _slots(wheel, max(clockwork.read_ms // wheel.precision_ms, 1)):
            last = self._last_below(slot, cut)
            if slot.is_marked or last is None:
                wheel.set_slot(slot.number, NOWHERE, 0, True)
                broken[slot.number] = slot
            elif last == NOWHERE:
                wheel.clear_slot(slot.number)
            elif last == slot.last:
                pending += slot.message_count
            else:
                count = _message_count(units, last)
                wheel.set_slot(slot.number, last, count, False)
                pending += count
        clockwork.pending = pending
        return not broken or self._put_together(broken, cut)

    def relink(self, first: int, end: int) -> None:
        """Link the units in [first, end), which are sound, into the wheel."""
        clockwork, units, position = self.clockwork, self.clockwork.units, first
        while position < end:
            clockwork.link_unit(position)
            position = units.after(position)

    def _last_below(self, slot: _Slot, cut: int) -> int | None:
        """The newest unit of a slot below `cut`, or NOWHERE; None if the chain is broken."""
        units, precision_ms = self.clockwork.units, self.clockwork.wheel.precision_ms
        position = slot.last
        while position != NOWHERE:
            if 0 <= position < units.first_position:
                return NOWHERE  # retention has taken it: its record is gone
            unit = units.unit(position)
            if unit is None or unit[2] // precision_ms != slot.time:
                return None
            if position < cut:
                return position
            position = unit[0]
        return NOWHERE

    def _put_together(self, broken: dict[int, _Slot], cut: int) -> bool:
        """Link the units of marked slots, then take the marks away."""
        clockwork, wheel, units = self.clockwork, self.clockwork.wheel, self.clockwork.units
        position = max(min(slot.first for slot in broken.values()), units.first_position)
        while position < cut:
            unit = units.unit(position)
            if unit is None:
                return False
            time = unit[2] // wheel.precision_ms
            slot = broken.get(time % wheel.slot_count)
            if slot is not None and slot.time == time:
                clockwork.link_unit(position)
            position = units.after(position)
        for slot in broken.values():
            found = wheel.slot(slot.time * wheel.precision_ms)
            if found is None or found[1] == NOWHERE:
                wheel.clear_slot(slot.number)
            else:
                wheel.set_slot(slot.number, found[1], found[2], False)
        return True


def _slots(wheel: Wheel, first_time: int) -> Iterator[_Slot]:
    """Slots of a time and later ones, in the order of the file."""
    size = wheel.slot_count * _SLOT.size
    for position in range(0, size, wheel_chunk_bytes):
        chunk = bytes(wheel.buffer[position : position + wheel_chunk_bytes])
        if chunk == _UNUSED:
            continue
        for number, slot in enumerate(_SLOT.iter_unpack(chunk), position // _SLOT.size):
            if slot[0] >= first_time:
                yield _Slot(number, *slot)


def _message_count(units: TimerLog, position: int) -> int:
    """How many messages a chain leaves, from its newest unit back."""
    count = 0
    while (unit := units.unit(position)) is not None:
        count += -1 if unit[1] & DELETES else 1
        position = unit[0]
    return count
