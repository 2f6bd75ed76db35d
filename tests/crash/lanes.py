"""Background lanes that move only when told, so that one seed decides what overtakes what.

The store hands blocking work to a lane and goes on; here the work waits until the campaign lets it
run, and its end waits again until the campaign lets the loop hear of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from random import Random
from typing import Any


class Lanes:
    """Every lane of one store, and the loop; handed to it as `post`."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._lanes: list[SteppedLane] = []
        self._posted: deque[Callable[[], None]] = deque()
        self.working: SteppedLane | None = None  # whose job runs now
        self.is_loop_free = False  # to go on beside it; not when it waits for the lane

    def __call__(self, callback: Callable[[], None]) -> None:
        """Call back when the loop comes round."""
        self._posted.append(callback)

    def join(self, lane: SteppedLane) -> None:
        """Take a lane in."""
        self._lanes.append(lane)

    @property
    def is_busy(self) -> bool:
        """Whether anything is under way."""
        return bool(self._posted) or any(lane.is_busy for lane in self._lanes)

    def step(self) -> bool:
        """Let a lane run its next job or tell the end of one, or the loop come round.

        False when all are idle.
        """
        busy = [lane for lane in self._lanes if lane.is_busy]
        if self._posted and self._random.random() < 0.5:
            self._posted.popleft()()
        elif busy:
            self.is_loop_free = True
            self._random.choice(busy).step()
            self.is_loop_free = False
        return self.is_busy

    def finish(self, name: str) -> None:
        """Let one lane come to its end."""
        next(lane for lane in self._lanes if lane.name == name).wait()

    def settle(self) -> None:
        """Let everything come to its end."""
        while self.is_busy:
            while self._posted:
                self._posted.popleft()()
            for lane in self._lanes:
                lane.wait()


class SteppedLane:
    """Runs jobs one after the other, each when told."""

    def __init__(self, name: str, lanes: Lanes) -> None:
        self.name = name
        self._lanes = lanes
        self._jobs: deque[tuple[Callable[[], Any], Callable[[Future[Any]], None]]] = deque()
        self._ended: Future[Any] | None = None  # of the first job, until its end is told
        self._is_closed = False
        lanes.join(self)

    @property
    def is_busy(self) -> bool:
        """Whether there is anything to step."""
        return bool(self._jobs)

    def run(self, job: Callable[[], Any], done: Callable[[Future[Any]], None]) -> None:
        """Queue a job."""
        self._jobs.append((job, done))
        if self._is_closed:
            self.wait()

    def step(self) -> None:
        """Run the first job, or tell that it has ended."""
        if self._ended is None:
            self._ended = self._run(self._jobs[0][0])
            return
        future, self._ended = self._ended, None
        self._jobs.popleft()[1](future)

    def wait(self) -> None:
        """Run and tell everything."""
        assert self._lanes.working is not self, f"{self.name} waits for its own job"
        was_free, self._lanes.is_loop_free = self._lanes.is_loop_free, False
        while self._jobs:
            self.step()
        self._lanes.is_loop_free = was_free

    def close(self) -> None:
        """Run and tell everything; later jobs run at once."""
        self.wait()
        self._is_closed = True

    def _run(self, job: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        before, self._lanes.working = self._lanes.working, self
        try:
            future.set_result(job())
        except AssertionError:
            raise
        except Exception as error:
            future.set_exception(error)
        finally:
            self._lanes.working = before
        return future
