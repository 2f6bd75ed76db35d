"""Where a lake ends and brokers take over."""

import pytest

from ariane.errors import ConfigError, DataLoss
from ariane.spark.offsets import Queue
from ariane.spark.pipelines.history import RangeConfig, Seam, seams
from ariane.spark.pipelines.manifest import FileRange, LakeError, LakeFile
from ariane.spark.pipelines.ranges import Span

QUEUE = Queue("orders", "broker-a", 0)


def file(first: int, end: int) -> LakeFile:
    held = FileRange("broker-a", 0, first, end, end - first, 0)
    return LakeFile(f"{first}.parquet", "orders", "2026-11-16", 1, 0, 1, (held,))


@pytest.mark.parametrize(
    ("archived", "live", "seam"),
    [
        ([(0, 10), (10, 20)], (15, 30), Seam(0, 20, 30)),  # both have some
        ([(0, 20)], (20, 30), Seam(0, 20, 30)),  # they just meet
        ([(0, 20)], (0, 20), Seam(0, 20, 20)),  # the lake has it all
        ([], (5, 9), Seam(5, 5, 9)),
        ([(3, 8)], None, Seam(3, 8, 8)),  # the queue is no more
        ([(0, 20)], (20, 20), Seam(0, 20, 20)),  # retention took all, and nothing came
    ],
)
def test_seams(archived: list[tuple[int, int]], live: tuple[int, int] | None, seam: Seam) -> None:
    files = [file(*span) for span in archived]
    assert seams(files, {QUEUE: Span(*live)} if live else {}) == {QUEUE: seam}


def test_what_neither_has_is_loss_unless_that_is_all_right() -> None:
    with pytest.raises(DataLoss, match="queue 0: wanted offset 20, available 25: retention passed"):
        seams([file(0, 20)], {QUEUE: Span(25, 30)})
    assert seams([file(0, 20)], {QUEUE: Span(25, 30)}, fails=False) == {QUEUE: Seam(0, 25, 30)}
    with pytest.raises(DataLoss, match="wanted offset 10, available 15: the lake has a gap"):
        seams([file(0, 10), file(15, 20)], {})
    assert seams([file(0, 10), file(15, 20)], {}, fails=False) == {QUEUE: Seam(0, 20, 20)}


@pytest.mark.parametrize("fails", [True, False])
def test_another_topic_of_the_same_name_is_always_refused(fails: bool) -> None:
    with pytest.raises(DataLoss, match="wanted offset 20, available 5: the lake is ahead"):
        seams([file(0, 20)], {QUEUE: Span(0, 5)}, fails=fails)


def test_a_lake_that_has_offsets_twice_is_refused() -> None:
    with pytest.raises(LakeError, match=r"has offsets \[5, 10\) twice"):
        seams([file(0, 10), file(5, 20)], {})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"since": "yesterday"}, "--since must be milliseconds since 1970 or a time such as"),
        ({"since": "2026-11-16T10:00"}, "with its offset from UTC"),
        ({"since": "20", "until": "10"}, "--since 20 is not before --until 10"),
        ({"first_offset": 7, "end_offset": 7}, "--first-offset 7 is not before --end-offset 7"),
    ],
)
def test_ranges_that_cannot_be(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        RangeConfig(**options).bounds()  # type: ignore[arg-type]


def test_ranges_as_written() -> None:
    config = RangeConfig(since="2026-11-16T01:00:00+01:00", until="1794787200001", end_offset=9)
    bounds = config.bounds()
    assert (bounds.since_ms, bounds.until_ms) == (1_794_787_200_000, 1_794_787_200_001)
    assert (bounds.first, bounds.end) == (0, 9)
    ago = RangeConfig(since="2h", until="1h").bounds()
    assert ago.since_ms is not None
    assert ago.until_ms is not None
    assert 3_599_000 <= ago.until_ms - ago.since_ms <= 3_601_000
