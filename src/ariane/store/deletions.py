"""Which topics were deleted, and how far the log went then: their records stay in it for a while.

Queues that are read from the whole log again would hold those records, and show them to whoever
makes a topic of that name anew. So a deletion is noted before the first queue goes, and a start
carries out what is noted: it ends one that was cut short, too. Apache's broker leaves the file be.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from ariane.disk import Disk
from ariane.errors import DiskFull
from ariane.kernel.queue import Queue
from ariane.store import config_files
from ariane.store.flush import may_try_again
from ariane.store.queues import Queues

logger: Final = logging.getLogger("ariane.store")

PATH: Final = "config/deletedTopics.json"


class Deletions:
    """Topic -> the log offset below which none of its records counts."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._ends: dict[str, int] = {}

    def load(self) -> None:
        """Read what was noted."""
        self._ends = config_files.load(self._disk, PATH, _decode) or {}

    def note(self, topic: str, log_end: int, log_start: int) -> None:
        """Put a deletion on the platter; those of records that are gone are forgotten."""
        kept = {name: end for name, end in self._ends.items() if end > log_start}
        try:
            self._save(kept | {topic: log_end})
        except (DiskFull, OSError) as error:  # a topic is deleted to make room, often enough
            if not may_try_again(error):
                raise
            logger.warning("deletion not noted topic=%s reason=%s", topic, error)

    def covers(self, topic: str, log_offset: int) -> bool:
        """Whether a topic's record was deleted with it."""
        return log_offset < self._ends.get(topic, 0)

    def has_taken(self, queue: Queue) -> bool:
        """Whether every record of a queue was deleted with its topic."""
        last = queue.entry(queue.end - 1)
        return last is not None and self.covers(queue.topic.decode(), last[0])

    def carry_out(self, queues: Queues, log_end: int) -> bool:
        """Remove the queues whose every record was deleted with its topic; whether there were any.

        What a log noted that went further than this one is forgotten: it would be held against
        records that are yet to come.
        """
        kept = {topic: end for topic, end in self._ends.items() if end <= log_end}
        if kept != self._ends:
            self._save(kept)
        was_needed = False
        for topic in kept:
            found = [queue for (name, _), queue in queues if name == topic and queue.file_count]
            old = [queue for queue in found if self.has_taken(queue)]
            was_needed = was_needed or bool(old)
            if old and len(old) == len(found):
                queues.delete_topic(topic)
            else:  # made anew since, with fewer queues
                for queue in old:
                    queues.reset(queue)
        return was_needed

    def _save(self, ends: dict[str, int]) -> None:
        self._ends = ends
        config_files.persist(self._disk, PATH, msgspec.json.encode(ends))


def _decode(data: bytes) -> dict[str, int]:
    try:
        return msgspec.json.decode(data, type=dict[str, int])
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error
