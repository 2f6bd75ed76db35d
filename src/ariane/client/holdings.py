"""The queues that a push consumer holds: taken, kept, moved and given up.

What a queue has been consumed to is committed before somebody else may read it. A queue whose order
is kept is held under a broker's lock from before its offset is asked for until its last handler
has ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Final

from ariane.client.locks import QueueLocks
from ariane.client.offset_stores import OffsetStore, RemoteOffsets
from ariane.client.process_queue import ProcessQueue
from ariane.client.reading import Desk, Reader
from ariane.client.starting import Start, first_position
from ariane.errors import ArianeError
from ariane.protocol.bodies import MessageQueue

STUCK_DELAY_S: Final = 10.0

log = logging.getLogger("ariane.client")


class Holdings:
    """The readers of one consumer."""

    def __init__(self, desk: Desk, store: OffsetStore, start: Start) -> None:
        self.store = store
        self._desk = desk
        self._start = start
        self._locks = QueueLocks(desk.session, desk.group)
        self._needs_locks = desk.is_orderly and not desk.is_broadcast
        self._readers: dict[MessageQueue, Reader] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def queues(self) -> Iterable[MessageQueue]:
        """The queues that are read now."""
        return self._readers

    @property
    def processes(self) -> list[ProcessQueue]:
        """What is held of each."""
        return [reader.process for reader in self._readers.values()]

    async def take_share(self, topic: str, queues: Sequence[MessageQueue]) -> bool:
        """Read these queues of the topic and no others; whether all of them could be taken."""
        share = set(queues)
        for queue, reader in list(self._readers.items()):
            if queue.topic == topic and queue not in share and not reader.is_leaving:
                log.info("queue given up group=%s queue=%s", self._desk.group, queue)
                if self._needs_locks:
                    self.spawn(self._give_up(reader))  # its handler may take long
                else:
                    await self._give_up(reader)
        wanted = [queue for queue in queues if queue not in self._readers]
        late = [queue for queue in queues if queue in self._readers and self._is_leaving(queue)]
        locked = set(wanted)
        if self._needs_locks and wanted:
            locked, _ = await self._locks.lock(wanted)
        taken = await asyncio.gather(*(self._take(queue) for queue in wanted if queue in locked))
        return len(locked) == len(wanted) and all(taken) and not late

    def give_up_topic(self, topic: str) -> None:
        """Read none of the topic's queues."""
        for queue, reader in list(self._readers.items()):
            if queue.topic == topic and not reader.is_leaving:
                self.spawn(self._give_up(reader))

    def go_on(self, queue: MessageQueue, offset: int) -> None:
        """Read the queue from elsewhere, if it is read here; what was held counts no more."""
        reader = self._readers.get(queue)
        if reader is not None and not reader.is_leaving:
            self.spawn(self._go_on(reader, offset))

    async def commit(self) -> None:
        """Keep the progress made so far."""
        now_s = self._desk.session.clock.monotonic_s()
        await self.store.write(
            {
                queue: reader.process.watch(now_s=now_s)
                for queue, reader in self._readers.items()
                if not reader.process.is_dropped
            }
        )

    async def renew_locks(self) -> None:
        """Ask for all locks again; who has lost one begins nothing more."""
        readers = list(self._readers.values())
        locked, unknown = await self._locks.lock([reader.queue for reader in readers])
        now_s = self._desk.session.clock.monotonic_s()
        for reader in readers:
            if reader.queue in locked:
                reader.process.lock(now_s=now_s)
                reader.advance()
            elif reader.queue.broker_name not in unknown:
                log.warning("lock lost group=%s queue=%s", self._desk.group, reader.queue)
                reader.process.unlock()

    def send_stuck_back(self) -> None:
        """Give messages back that have waited and been worked on here for too long."""
        now_s, timeout_s = self._desk.session.clock.monotonic_s(), self._desk.timeout_s
        for reader in self._readers.values():
            for message in reader.process.stuck(
                now_s=now_s, timeout_s=timeout_s, waiting=self._desk.delivery.does_waiting_count
            ):
                log.warning(
                    "%s in %g s group=%s %r",
                    "handler has not ended" if message.is_started else "no handler was free",
                    timeout_s,
                    self._desk.group,
                    message,
                )
                self.spawn(reader.nack(message, STUCK_DELAY_S))

    async def stop_pulling(self) -> None:
        """Bring nothing more in, for good."""
        self._is_closed = True
        await asyncio.gather(*(reader.stop_pulling() for reader in self._readers.values()))

    def abandon(self) -> None:
        """Count on no handler to end any more."""
        for reader in self._readers.values():
            reader.abandon()

    async def close(self) -> None:
        """Commit everything and let go of everything."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        offsets = {queue: reader.process.drop() for queue, reader in self._readers.items()}
        self._readers.clear()
        await self.store.write(offsets, wait=True)
        await self._locks.unlock(self._locks.held)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this in the background; `close` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("consumer failed group=%s", self._desk.group, exc_info=error)

    def _is_leaving(self, queue: MessageQueue) -> bool:
        return self._readers[queue].is_leaving

    async def _take(self, queue: MessageQueue) -> bool:
        try:
            position = await first_position(self._start, queue, self.store, self._desk.puller)
        except ArianeError as error:
            # Without the true offset there is no beginning; the next round asks again.
            log.warning("queue not taken group=%s queue=%s: %s", self._desk.group, queue, error)
            return False
        self._begin(queue, position)
        return True

    def _begin(self, queue: MessageQueue, position: int) -> None:
        if self._is_closed or queue.topic not in self._desk.filters:
            return
        log.info("queue taken group=%s queue=%s position=%d", self._desk.group, queue, position)
        reader = self._readers[queue] = Reader(self._desk, queue, position)
        if self._needs_locks:
            reader.process.lock(now_s=self._desk.session.clock.monotonic_s())
        reader.start()

    async def _give_up(self, reader: Reader) -> None:
        offset = await reader.leave()
        if self._readers.get(reader.queue) is reader:
            del self._readers[reader.queue]
        await self.store.write({reader.queue: offset}, wait=True)
        self._desk.puller.forget(reader.queue)
        if isinstance(self.store, RemoteOffsets):
            self.store.forget(reader.queue)
        if self._needs_locks:
            await self._locks.unlock([reader.queue])

    async def _go_on(self, reader: Reader, offset: int) -> None:
        if reader.is_leaving:
            return
        await reader.leave()
        if self._readers.get(reader.queue) is reader:
            await self.store.write({reader.queue: offset}, wait=True)
            self._desk.puller.forget(reader.queue)
            self._begin(reader.queue, offset)
            self._desk.membership.hurry()  # the queue may have been taken away meanwhile
