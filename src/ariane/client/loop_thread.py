"""An event loop on a thread of its own, for callers that block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar, TypeVarTuple, Unpack

from ariane.client import forks
from ariane.errors import ClientError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class LoopThread:
    """A loop that runs until it is stopped; a forked child gets a new one when it needs it."""

    def __init__(self) -> None:
        self.is_running = True  # takes work
        self._lock = threading.RLock()  # a signal may come while it is held, and close
        self._start()
        forks.watch(self)

    def forked(self) -> None:
        """This is a child process, where the thread does not exist."""
        self._lock = threading.RLock()
        self._left_behind = self._loop  # not closed: it shares its selector with the parent's
        self._is_started = False

    def check(self) -> None:
        """Raise ClientError unless work is taken."""
        if not self.is_running:
            raise ClientError("the client is closed; make a new one")

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start the work; the future is this thread's to wait on or to cancel."""
        try:
            with self._lock:  # what is taken reaches the loop before `stop` does
                self._check_started()
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        except ClientError:
            work.close()
            raise

    def tell(self, callback: Callable[[Unpack[Ts]], object], *arguments: *Ts) -> None:
        """Have something done on the loop's thread, soon; nobody waits for it."""
        with self._lock:
            if self.is_running:
                self._check_started()
                self._loop.call_soon_threadsafe(callback, *arguments)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work and wait for it."""
        if threading.current_thread() is self._thread and self.is_running:
            work.close()
            raise ClientError(
                "a blocking call on the client's own thread would wait for itself; call it from"
                " a handler, a hook or any other thread"
            )
        future = self.submit(work)
        try:
            return future.result()
        except BaseException as error:
            future.cancel()  # an interrupted caller must not leave the work running
            if isinstance(error, CancelledError) and not self.is_running:
                raise ClientError("the client was closed before this ended") from None
            raise

    def call(self, work: Callable[[], T]) -> T:
        """Do something that takes no time on the loop's thread, and wait for it."""

        async def call() -> T:
            return work()

        return self.run(call())

    def stop(self) -> None:
        """Take no more work, end what was taken, and end the thread. May be called again."""
        with self._lock:
            was_running, self.is_running = self.is_running, False
            if was_running and self._is_started:
                self._loop.call_soon_threadsafe(self._loop.stop)
        if self._is_started:
            self._thread.join()

    def _check_started(self) -> None:
        """Begin anew in a forked child; raises ClientError when no work is taken any more."""
        self.check()
        if not self._is_started:
            self._start()

    def _start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name="ariane-client", daemon=True)
        self._thread.start()
        self._is_started = True

    def _work(self) -> None:
        loop = self._loop
        try:
            while not self._has_stopped(loop):
                pass
            loop.run_until_complete(_end_tasks())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()

    def _has_stopped(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Run the loop; False when something else than `stop` has ended it."""
        try:
            loop.run_forever()
        except (KeyboardInterrupt, SystemExit):  # users' code raised it, and its caller is told
            with self._lock:
                if not self.is_running:  # the loop may have been told to stop, and forgotten it
                    loop.call_soon(loop.stop)
            return False
        return True


async def _end_tasks() -> None:
    """Leave nothing unfinished: whoever waits for it would wait for ever."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
