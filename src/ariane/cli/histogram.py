"""Latencies in buckets that grow with the value: 3 % wide, so a percentile is right to 3 %."""

from __future__ import annotations

from collections import Counter
from typing import Final

_EXACT_BITS: Final = 5  # 32 buckets for each doubling


class Histogram:
    """Counts of microseconds; merging two is as good as having recorded both in one."""

    def __init__(self) -> None:
        self.count = 0
        self.total_us = 0
        self.max_us = 0
        self._buckets: Counter[int] = Counter()

    def record(self, value_us: int) -> None:
        """Count one value."""
        value_us = max(value_us, 0)
        self.count += 1
        self.total_us += value_us
        self.max_us = max(self.max_us, value_us)
        self._buckets[_bucket_of(value_us)] += 1

    def percentile(self, percent: float) -> int:
        """The value that `percent` of all values do not exceed; 0 when there are none."""
        wanted = self.count * percent / 100
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return min(_upper_of(bucket), self.max_us)
        return self.max_us

    def summary_ms(self) -> dict[str, float]:
        """The usual figures, in milliseconds."""
        figures = {
            "mean": self.total_us / self.count if self.count else 0.0,
            "p50": self.percentile(50),
            "p90": self.percentile(90),
            "p99": self.percentile(99),
            "p99.9": self.percentile(99.9),
            "max": self.max_us,
        }
        return {name: round(value / 1000, 3) for name, value in figures.items()}


def _bucket_of(value: int) -> int:
    shift = max(value.bit_length() - _EXACT_BITS - 1, 0)
    return (shift << _EXACT_BITS) + (value >> shift)


def _upper_of(bucket: int) -> int:
    """The largest value in the bucket."""
    shift = max((bucket >> _EXACT_BITS) - 1, 0)
    return (((bucket - (shift << _EXACT_BITS)) + 1) << shift) - 1
