"""Where blocking calls go: a thread each, or right here in tests.

A job runs elsewhere and returns a value; `done` runs on the loop with the finished future. One lane
does one job at a time, in order. Nothing else is shared: a job gets what it needs as values.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Post = Callable[[Callable[[], None]], None]


class EventLoop(Protocol):
    """What the store asks of the loop it is driven by, beside `post`; asyncio's has it.

    A `Poller` has it too, and calls soonest: when the requests that are there have been served.
    """

    def call_soon(self, callback: Callable[[], None]) -> Any:
        """Call once, before the loop sleeps again; from the loop's own thread."""
        ...

    def add_reader(self, descriptor: int, callback: Callable[[], None]) -> Any:
        """Call whenever the descriptor can be read."""
        ...

    def remove_reader(self, descriptor: int) -> Any:
        """Watch it no longer."""
        ...


class Lane(Protocol):
    """Runs jobs one after the other."""

    def run(self, job: Callable[[], T], done: Callable[[Future[T]], None]) -> None:
        """Start a job; `done` is called on the loop once it has ended, well or badly."""
        ...

    def wait(self) -> None:
        """Return once every job so far has ended and its `done` been called."""
        ...

    def close(self) -> None:
        """Wait, and take no more jobs."""
        ...


class InlineLane:
    """Runs each job at once, where it is asked for."""

    def run(self, job: Callable[[], T], done: Callable[[Future[T]], None]) -> None:
        """Do the job and tell."""
        future: Future[T] = Future()
        _settle(future, job)
        done(future)

    def wait(self) -> None:
        """Nothing is ever under way."""

    def close(self) -> None:
        """Nothing is ever under way."""


class ThreadLane:
    """Runs jobs on a thread of its own."""

    def __init__(self, name: str, post: Post) -> None:
        self._post = post
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._under_way: deque[tuple[Callable[[], bool], Callable[[], None]]] = deque()
        self._ended = threading.Condition()
        self._thread = threading.Thread(target=self._work, name=f"ariane-{name}", daemon=True)
        self._thread.start()

    def run(self, job: Callable[[], T], done: Callable[[Future[T]], None]) -> None:
        """Queue the job; a closed lane does it at once."""
        future: Future[T] = Future()
        if not self._thread.is_alive():
            _settle(future, job)
            done(future)
            return
        self._under_way.append((future.done, lambda: done(future)))
        self._jobs.put(lambda: _settle(future, job))

    def wait(self) -> None:
        """Return once every job so far has ended and its `done` been called."""
        while self._under_way:
            with self._ended:
                self._ended.wait_for(self._under_way[0][0])
            self._deliver()

    def close(self) -> None:
        """Wait, and end the thread."""
        self.wait()
        self._jobs.put(None)
        self._thread.join()

    def _deliver(self) -> None:
        """Call `done` of every job that has ended, in order; it may already have happened."""
        while self._under_way and self._under_way[0][0]():
            self._under_way.popleft()[1]()

    def _work(self) -> None:
        while (work := self._jobs.get()) is not None:
            work()
            with self._ended:
                self._ended.notify_all()
            self._post(self._deliver)


def lane_of(name: str, post: Post | None) -> Lane:
    """A thread that reports through `post`; without it everything is done at once."""
    return InlineLane() if post is None else ThreadLane(name, post)


def _settle(future: Future[T], job: Callable[[], T]) -> None:
    try:
        future.set_result(job())
    except Exception as error:  # the future carries it to whoever asked
        future.set_exception(error)
