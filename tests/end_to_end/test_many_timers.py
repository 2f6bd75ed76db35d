"""Timed messages through kill -9: a hundredth of what `many_timers.py` does by itself."""

from pathlib import Path

import pytest

from tests.end_to_end.many_timers import LATE_MS_MAX, faults_in, run

COUNT, PER_S = 20_000, 5_000
HELD_UP_MS_MAX = 10_000  # a machine this busy has other tests fail


@pytest.mark.slow
def test_many_timed_messages_through_kills(tmp_path: Path) -> None:
    report = run(tmp_path, COUNT, PER_S, fill_s=20)
    print(report)
    assert not faults_in(report, PER_S)
    assert report.late_ms[len(report.late_ms) // 2] <= LATE_MS_MAX
    assert report.late_ms[-1] <= HELD_UP_MS_MAX, f"the latest by {report.late_ms[-1]} ms"
