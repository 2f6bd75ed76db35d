"""Ten histories of kills, and that the judge of them would notice."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spark.histories import FAULTS, LIVES, TOGETHER, difference, history_of, run


@pytest.mark.timeout(600)
def test_ten_histories(tmp_path: Path, say: Callable[[str], None]) -> None:
    done = run(range(TOGETHER), tmp_path)

    say("histories on Spark: " + ", ".join(f"{count} {what}" for what, count in done.items()))
    assert {history_of(seed).kind for seed in range(TOGETHER)} == {"sink", "parquet"}
    assert done["drivers killed"] == LIVES - 1
    assert done["brokers killed"] == (LIVES - 1) * FAULTS.count("broker")
    assert done["workers killed"] > 0
    assert done["commits deleted"] > 0


@pytest.mark.parametrize(
    ("written", "verdict"),
    [
        ([b"a", b"b", b"c"], ""),
        ([b"a", b"c"], "1 lost [b'b']"),
        ([b"a", b"b", b"b", b"c"], "1 doubled [b'b']"),
        ([b"b", b"a", b"c"], "out of order from row 0"),
        ([b"a", b"b", b"c", b"d"], "3 sent, 4 written"),
        ([], "3 lost"),
    ],
)
def test_the_judge_notices(written: list[bytes], verdict: str) -> None:
    found = difference([b"a", b"b", b"c"], written)

    assert verdict in found
    assert bool(found) == bool(verdict)
