"""What records of the log are put into, and when one says of itself what cannot be.

A record says which queue it is in and under which number. Only its body has a checksum: so numbers
are followed as far as they make sense, and a record without a queue it could be in is left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ariane.errors import StoreError
from ariane.kernel.dispatch import dispatch
from ariane.kernel.index import Index
from ariane.kernel.log import Log
from ariane.kernel.queue import Queue
from ariane.store.indexes import Indexes
from ariane.store.queues import ENTRY_BYTES, RECORD_BYTES_MIN, Queues, may_number

logger: Final = logging.getLogger("ariane.store")


class Dispatcher:
    """Puts stretches of the log into queues and index; without `indexes`, into queues alone."""

    def __init__(self, log: Log, queues: Queues, indexes: Indexes | None) -> None:
        self.skipped_bytes = 0  # of the log, because they are damaged
        self._log = log
        self._queues = queues
        self._indexes = indexes

    def run(
        self,
        first: int,
        end: int,
        *,
        index_from: int = 0,
        check_crc: bool = False,
        make_room: Callable[[Queue, int], bool] | None = None,
        arrivals: list[Queue] | None = None,
    ) -> tuple[int, int, int]:
        """Put in the records from `first` to `end`: (where that ended, last store time, records).

        Raises DiskFull or OSError when there is no room, and may be asked again then. Queues that
        somebody waits for are put into `arrivals`.
        """
        return dispatch(
            self._log,
            first,
            end,
            queue_of=self.queue_of,
            make_room=make_room or self.step,
            index_of=_no_index if self._indexes is None else self._indexes.make_room,
            index_from=index_from,
            check_crc=check_crc,
            arrivals=arrivals,
        )

    def queue_of(self, topic: bytes, queue_id: int) -> Queue | None:
        """The queue a record says it is in, if there can be one."""
        try:
            return self._queues.obtain(topic.decode(), queue_id)
        except (UnicodeDecodeError, StoreError) as error:
            logger.warning(
                "damaged messages left out topic=%r queue=%d reason=%s", topic, queue_id, error
            )
            return None

    def step(self, queue: Queue, queue_offset: int) -> bool:
        """Have room for an entry, where the queue can go on with that number."""
        if queue.end != queue_offset:
            if not self.can_number(queue, queue_offset):
                logger.warning(
                    "damaged message left out topic=%s queue=%d expected=%d found=%d",
                    *(queue.topic.decode(), queue.queue_id, queue.end, queue_offset),
                )
                return False
            self._queues.step_to(queue, queue_offset)
        self._queues.make_room(queue)
        return True

    def can_number(self, queue: Queue, queue_offset: int) -> bool:
        """Whether a queue may go on at a number other than its next one.

        Padding up to a damaged one could fill the disk, stepping back to it would hide messages.
        """
        if not may_number(self._log, queue_offset):
            return False
        if queue_offset == 0 or self._queues.is_spent(queue):
            return True  # a topic made anew, or nothing to lose
        jump_max = max(queue.file_bytes // ENTRY_BYTES, self.skipped_bytes // RECORD_BYTES_MIN)
        return 0 < queue_offset - queue.end <= jump_max


def _no_index(key_count: int) -> Index | None:
    return None
