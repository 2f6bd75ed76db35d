"""Killed in the middle of an append: some of its stores are in memory, the later ones are not.

The kernel writes record, queue entry, index entries, each with the word that makes it count last.
Nothing of that is an operation of the disk, so such an image is put together from the disk before
the append and the one after it.
"""

from __future__ import annotations

from random import Random

from ariane.config import StoreConfig
from ariane.disk import SimulatedDisk

from .records import Record

ENTRY_BYTES = 20


def stop_half_way(
    before: SimulatedDisk, after: SimulatedDisk, record: Record, config: StoreConfig, random: Random
) -> None:
    """Carry some of an append's stores over to the disk as it was before."""
    base = record.log_offset - record.log_offset % config.segment_bytes
    log = _Copy(before, after, f"commitlog/{base:020d}")
    at, size = record.log_offset - base, len(record.data)
    steps = random.randrange(3)
    if steps == 0:
        log.carry(at + 4, at + random.randint(4, size))
        return
    log.carry(at, at + size)
    position = record.queue_offset * ENTRY_BYTES
    first = position - position % config.queue_file_bytes
    topic, queue_id = record.message.queue
    path = f"consumequeue/{topic}/{queue_id}/{first:020d}"
    if not before.exists(path) or not after.exists(path):
        return  # a queue without a file yet: its entries are in memory only
    queue = _Copy(before, after, path)
    at = position - first
    if steps == 1:
        queue.carry(at, at + random.choice([0, 4, 8]))
        return
    queue.carry(at, at + ENTRY_BYTES)
    for name, _ in after.names("index")[-1:]:
        index = _Copy(before, after, f"index/{name}")
        entries_at = 40 + 4 * config.index_slot_count
        changed = [i for i in index.changed() if i >= entries_at]
        if changed and random.random() < 0.7:
            index.carry(entries_at, random.choice(changed))
        else:
            index.carry(entries_at, config.index_entry_count * ENTRY_BYTES + entries_at)
            index.carry(random.randrange(40, entries_at), entries_at)  # slots, not the header


class _Copy:
    """One file on both disks."""

    def __init__(self, before: SimulatedDisk, after: SimulatedDisk, path: str) -> None:
        self._source = after.read(path)
        self._target = before.mapped(path, len(self._source)).buffer

    def changed(self) -> list[int]:
        """Where the two differ."""
        pairs = enumerate(zip(self._source, bytes(self._target), strict=True))
        return [i for i, (new, old) in pairs if new != old]

    def carry(self, first: int, end: int) -> None:
        """Take a range over."""
        self._target[first:end] = self._source[first:end]
