"""What a consumer counts of its work, for those who look at it from afar."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

SAMPLE_S: Final = 10.0
WINDOW: Final = 6  # samples kept: rates are those of the last minute


@dataclass(frozen=True, slots=True)
class Counts:
    """Everything counted up to a moment."""

    at_s: float
    pulls: int
    pull_spent_s: float
    pulled: int
    succeeded: int
    failed: int
    spent_s: float


@dataclass(frozen=True, slots=True)
class Rates:
    """How a topic has been consumed lately."""

    pull_ms: float
    pulled_per_s: float
    consume_ms: float
    succeeded_per_s: float
    failed_per_s: float
    failed: int


class ConsumeStatistics:
    """Counts of one topic, and what they have been every ten seconds."""

    __slots__ = (
        "_samples",
        "failures",
        "pull_spent_s",
        "pulls",
        "received",
        "spent_s",
        "successes",
    )

    def __init__(self, *, now_s: float) -> None:
        self.pulls = 0  # those that brought something
        self.pull_spent_s = 0.0
        self.received = 0
        self.successes = 0
        self.failures = 0
        self.spent_s = 0.0  # by handlers, of both
        self._samples = deque([self._counts(now_s)], maxlen=WINDOW)

    def pulled(self, count: int, spent_s: float) -> None:
        """A pull brought so many messages after so long."""
        self.pulls += 1
        self.pull_spent_s += spent_s
        self.received += count

    def sample(self, *, now_s: float) -> None:
        """Remember the counts as they are."""
        self._samples.append(self._counts(now_s))

    def rates(self, *, now_s: float) -> Rates:
        """What has been since the oldest sample."""
        first, last = self._samples[0], self._counts(now_s)
        span_s = max(last.at_s - first.at_s, 1e-9)
        handled = last.succeeded + last.failed - first.succeeded - first.failed
        return Rates(
            pull_ms=_ms(last.pull_spent_s - first.pull_spent_s, last.pulls - first.pulls),
            pulled_per_s=(last.pulled - first.pulled) / span_s,
            consume_ms=_ms(last.spent_s - first.spent_s, handled),
            succeeded_per_s=(last.succeeded - first.succeeded) / span_s,
            failed_per_s=(last.failed - first.failed) / span_s,
            failed=last.failed - first.failed,
        )

    def _counts(self, now_s: float) -> Counts:
        return Counts(
            now_s,
            self.pulls,
            self.pull_spent_s,
            self.received,
            self.successes,
            self.failures,
            self.spent_s,
        )


def _ms(spent_s: float, count: int) -> float:
    return spent_s * 1000 / count if count else 0.0
