"""The first files of queues, made on a lane while their first entries wait in memory.

Directories, a file and its blocks take half a millisecond; ten thousand topics that are sent to
for the first time would hold the loop up for seconds (docs/decisions/0029). Files are made in the
order in which queues asked, a few at a time, and the loop takes them over.

While one cannot be made, no further queue is left to wait: an append asks the disk itself, and its
sender is told. What waits already is in the log, and is tried again; no checkpoint covers it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, NamedTuple

from ariane.clock import Clock
from ariane.disk import Disk, MappedFile
from ariane.kernel.queue import Queue
from ariane.store.background import Lane, Post
from ariane.store.queues import ENTRY_BYTES, FIRST_CHUNK_BYTES, Queues

logger: Final = logging.getLogger("ariane.store")

BATCH: Final = 16  # files; whoever cannot wait for his own waits for these
RETRY_S: Final = 1.0

Made = Callable[[str | None], None]  # is told why not, or nothing


class _Order(NamedTuple):
    queue: Queue
    path: str
    data: bytes


class Making:
    """Makes the files that fresh queues ask for."""

    def __init__(self, disk: Disk, queues: Queues, clock: Clock, lane: Lane, post: Post) -> None:
        self._disk = disk
        self._queues = queues
        self._clock = clock
        self._lane = lane
        self._post = post
        self._wanted: deque[Queue] = deque()
        self._in_hand: list[_Order] = []
        self._asked = self._answered = 0  # queues so far
        self._waiting: deque[tuple[int, Made]] = deque()
        self._is_posted = False
        self._is_held = False
        self._fault: str | None = None  # why the last file was not made
        self._retry_at_s = 0.0

    def ask(self, queue: Queue) -> bool:
        """Let a queue be fresh, and have its file made; False while none can be."""
        if self._fault is not None or self._disk.maps_left <= self._asked - self._answered:
            return False
        queue.begin_fresh()
        self._wanted.append(queue)
        self._asked += 1
        if not self._in_hand and not self._is_posted:
            self._is_posted = True  # the round brings more of them, and their entries
            self._post(self._posted)
        return True

    def make_now(self, queue: Queue) -> None:
        """Give a fresh queue its file, at once; raises, and it waits on, when that fails."""
        if any(order.queue is queue for order in self._in_hand):
            self.hold(lambda: None)
        if queue.is_fresh:
            order = self._order(queue)
            self._queues.adopt(queue, self._make(order), len(order.data) // ENTRY_BYTES)

    def make_all_now(self) -> None:
        """Give every queue that waits its file; raises as `make_now` does."""
        while self._wanted:
            if self._is_wanted(self._wanted[0]):
                self.make_now(self._wanted[0])
            self._wanted.popleft()
            self._answered += 1
        self._fault = None
        self._tell()

    def end(self) -> None:
        """Make no more: the files are somebody else's from now on."""
        self._wanted.clear()

    def hold(self, act: Callable[[], None]) -> None:
        """Do something while no file is under way."""
        self._is_held = True
        try:
            if self._in_hand:
                self._lane.wait()
            act()
        finally:
            self._is_held = False
        self._begin()

    def after(self, done: Made) -> None:
        """Call once every queue that asked so far has its file, or why one has none."""
        if self._fault is not None:
            done(self._fault)
            return
        self._waiting.append((self._asked, done))
        self._tell()

    def tick(self) -> None:
        """Try again what failed."""
        if self._fault is not None:
            self._begin()

    def _posted(self) -> None:
        self._is_posted = False
        self._begin()

    def _begin(self) -> None:
        if self._in_hand or self._is_held:
            return
        if self._fault is not None and self._clock.monotonic_s() < self._retry_at_s:
            return
        while self._wanted and len(self._in_hand) < BATCH:
            queue = self._wanted.popleft()
            if self._is_wanted(queue):
                self._in_hand.append(self._order(queue))
            else:
                self._answered += 1
        if self._in_hand:
            orders = list(self._in_hand)
            self._lane.run(lambda: self._make_some(orders), self._made)
        else:
            self._fault = None
            self._tell()

    def _is_wanted(self, queue: Queue) -> bool:
        return queue.is_fresh and self._queues.get(queue.topic.decode(), queue.queue_id) is queue

    def _order(self, queue: Queue) -> _Order:
        return _Order(queue, self._queues.first_path(queue), queue.kept_bytes())

    def _make(self, order: _Order) -> MappedFile:
        return self._disk.made(
            order.path,
            order.queue.file_bytes,
            reserved=min(FIRST_CHUNK_BYTES, order.queue.file_bytes),
            data=order.data,
        )

    def _make_some(self, orders: list[_Order]) -> tuple[list[MappedFile], Exception | None]:
        """On the lane: as many files as can be made, and why there are not more."""
        made: list[MappedFile] = []
        for order in orders:
            try:
                made.append(self._make(order))
            except Exception as error:  # the loop tells whoever waits
                return made, error
        return made, None

    def _made(self, future: Future[tuple[list[MappedFile], Exception | None]]) -> None:
        files, error = future.result()
        orders, self._in_hand = self._in_hand, []
        for order, file in zip(orders, files, strict=False):
            self._queues.adopt(order.queue, file, len(order.data) // ENTRY_BYTES)
        self._answered += len(files)
        self._wanted.extendleft(order.queue for order in reversed(orders[len(files) :]))
        if error is None:
            self._fault = None
            self._tell()
            self._begin()
            return
        if self._fault is None:
            logger.warning("queue files not made, will be tried again reason=%s", error)
        self._fault = f"a queue's file cannot be made: {error}"
        self._retry_at_s = self._clock.monotonic_s() + RETRY_S
        while self._waiting:
            self._waiting.popleft()[1](self._fault)

    def _tell(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._answered:
            self._waiting.popleft()[1](None)
