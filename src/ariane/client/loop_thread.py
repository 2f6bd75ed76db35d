"""An event loop on a thread of its own, for callers that block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from ariane.client import forks
from ariane.errors import ClientError

T = TypeVar("T")


class LoopThread:
    """A loop that runs until it is stopped; a forked child gets a new one when it needs it."""

    def __init__(self) -> None:
        self.is_running = True  # takes work
        self._lock = threading.Lock()
        self._start()
        forks.watch(self)

    def forked(self) -> None:
        """This is a child process, where the thread does not exist."""
        self._lock = threading.Lock()
        self._left_behind = self._loop  # not closed: it shares its selector with the parent's
        self._is_started = False

    def check(self) -> None:
        """Raise ClientError unless work is taken."""
        if not self.is_running:
            raise ClientError("the client is closed; make a new one")

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start the work; the future is this thread's to wait on or to cancel."""
        try:
            self.check()
        except ClientError:
            work.close()
            raise
        if not self._is_started:
            with self._lock:
                if not self._is_started:
                    self._start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work and wait for it."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:  # an interrupted caller must not leave the work running
            future.cancel()
            raise

    def stop(self) -> None:
        """Take no more work, and end the thread."""
        if self.is_running:
            self.is_running = False
            if self._is_started:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()

    def _start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name="ariane-client", daemon=True)
        self._thread.start()
        self._is_started = True

    def _work(self) -> None:
        loop = self._loop
        try:
            loop.run_forever()
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()
