"""Timed messages through kill -9: a hundredth of what `many_timers.py` does by itself."""

from pathlib import Path

import pytest

from tests.end_to_end.many_timers import faults_in, run

COUNT, PER_S = 30_000, 10_000


@pytest.mark.slow
def test_many_timed_messages_through_kills(tmp_path: Path) -> None:
    report = run(tmp_path, COUNT, PER_S, fill_s=12)
    print(report)
    assert faults_in(report, PER_S) == []
