"""The lake: what is written, committed and compacted, and what a crash leaves of it."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from ariane.spark.offsets import Queue
from ariane.spark.pipelines import audit, compact
from ariane.spark.pipelines.history import Bounds, History
from ariane.spark.pipelines.lake import Lake
from ariane.spark.pipelines.manifest import Entry, LakeError, State
from ariane.spark.pipelines.ranges import Span
from tests.harness.message_rows import START, frame, message

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_MS = round(START.timestamp() * 1000)
HOUR_S = 3_600
BATCHES = 4


class Crash(Exception):
    """Where the process is killed."""


@pytest.fixture(scope="module")
def written(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of some batches: three messages of each of two queues in each, an hour apart."""
    path = tmp_path_factory.mktemp("lake")
    lake = Lake(spark, str(path))
    for batch in range(BATCHES):
        rows = [
            message("orders", queue, offset, b"%d" % offset, stored_s=offset * HOUR_S)
            for queue in (0, 1)
            for offset in range(3 * batch, 3 * batch + 3)
        ]
        add_batch(lake, batch, *rows)
    return path


@pytest.fixture
def lake(spark: "SparkSession", written: Path, tmp_path: Path) -> Lake:
    """A copy of it: the manifest names files by where they are in the lake."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    return Lake(spark, str(tmp_path))


def add_batch(lake: Lake, batch: int, *rows: tuple[object, ...]) -> None:
    job = f"query-{batch}"
    lake.stage(frame(lake.spark, *rows).coalesce(1), job)
    added = tuple(lake.publish(lake.staged(job), job))
    lake.commit(lambda state: Entry(kind="archive", job="query", batch_id=batch, add=added))


def offsets_in(lake: Lake) -> list[tuple[int, int, bytes]]:
    rows = lake.read(lake.state().files.values()).orderBy("queueId", "queueOffset").collect()
    return [(row["queueId"], row["queueOffset"], bytes(row["body"])) for row in rows]


def data_files(lake: Lake) -> set[str]:
    return {found.path for found in lake.files.walk()}


EVERYTHING = [(queue, offset, b"%d" % offset) for queue in (0, 1) for offset in range(12)]


def test_compacting_drops_nothing_sorts_and_is_done_once(
    spark: "SparkSession", lake: Lake, tmp_path: Path
) -> None:
    outcome = compact.run(spark, compact.Config(lake=str(tmp_path)))
    assert outcome.facts == {"days": 1, "files_before": 4, "files_after": 1, "dry_run": False}
    assert offsets_in(lake) == EVERYTHING
    assert data_files(lake) == set(lake.state().files)  # no file is left over
    places = [
        (row["queueId"], row["queueOffset"])
        for row in lake.read(lake.state().files.values()).coalesce(1).collect()
    ]
    assert places == sorted(places)
    version = lake.state().version
    again = compact.run(spark, compact.Config(lake=str(tmp_path)))
    assert again.facts["days"] == 0
    assert lake.state().version == version


def test_a_plain_reader_sees_the_same(spark: "SparkSession", written: Path) -> None:
    rows = spark.read.parquet(str(written))
    assert (rows.count(), set(rows.columns) >= {"topic", "day", "body"}) == (24, True)
    assert {str(row["day"]) for row in rows.select("day").collect()} == {"2026-11-16"}


def test_a_dry_run_changes_nothing(spark: "SparkSession", lake: Lake, tmp_path: Path) -> None:
    before = (lake.state(), data_files(lake))
    outcome = compact.run(spark, compact.Config(lake=str(tmp_path), dry_run=True))
    assert outcome.records == [
        {
            "topic": "orders",
            "day": "2026-11-16",
            "files_before": 4,
            "files_after": 1,
            "messages": 24,
        }
    ]
    assert (lake.state(), data_files(lake)) == before


def crash_in_commit(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """New files are in place, but no entry tells of them."""
    real = Lake.commit

    def commit(self: Lake, make: Callable[[State], Entry | None]) -> State:
        entry = make(self.state())
        if entry is not None and entry.kind == "compact":
            raise Crash
        return real(self, make)

    monkeypatch.setattr(Lake, "commit", commit)


def crash_in_delete(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry is there, but old files still are as well."""
    real = type(lake.files).delete

    def delete(self: object, path: str) -> None:
        if "query-" in path:
            raise Crash
        real(self, path)  # type: ignore[arg-type]

    monkeypatch.setattr(type(lake.files), "delete", delete)


def crash_in_staging(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """New files are written aside and no more."""

    def publish(self: Lake, *arguments: object) -> None:
        raise Crash

    monkeypatch.setattr(Lake, "publish", publish)


@pytest.mark.parametrize(
    ("crash", "files_after"),
    [(crash_in_staging, 4), (crash_in_commit, 4), (crash_in_delete, 1)],
)
def test_a_crash_leaves_old_or_new_and_the_next_run_cleans_up(
    *,
    spark: "SparkSession",
    lake: Lake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    crash: Callable[[Lake, pytest.MonkeyPatch], None],
    files_after: int,
) -> None:
    with monkeypatch.context() as patched:
        crash(lake, patched)
        with pytest.raises(Crash):
            compact.run(spark, compact.Config(lake=str(tmp_path)))
    assert len(lake.state().files) == files_after
    assert offsets_in(lake) == EVERYTHING
    compact.run(spark, compact.Config(lake=str(tmp_path)))
    assert offsets_in(lake) == EVERYTHING
    assert len(lake.state().files) == 1
    assert data_files(lake) == set(lake.state().files)
    assert not lake.files.names("_staging")


def test_a_compaction_that_another_one_gave_up_changes_nothing(
    spark: "SparkSession", lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Lake.publish

    def publish(self: Lake, *arguments: object) -> object:
        monkeypatch.undo()
        compact.run(spark, compact.Config(lake=str(tmp_path)))  # meanwhile, elsewhere
        return real(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Lake, "publish", publish)
    with pytest.raises(Exception, match=r"given up by another one|staging"):
        compact.run(spark, compact.Config(lake=str(tmp_path)))
    assert offsets_in(lake) == EVERYTHING


def test_overlaps_are_refused(lake: Lake) -> None:
    with pytest.raises(LakeError, match=r"offsets \[2, 3\) are in .*query-0-0000.parquet and in"):
        add_batch(lake, 9, message("orders", 0, 2), message("orders", 0, 30))
    assert len(lake.state().files) == BATCHES
    [stray] = lake.strays(lake.state())
    assert stray.endswith("query-9-0000.parquet")


def test_files_that_the_driver_does_not_see_are_refused(lake: Lake, tmp_path: Path) -> None:
    """So it is when executors on other machines have a directory of the same name."""
    [file, *_] = lake.state().files.values()
    path = tmp_path / "_staging/job" / file.path
    staged = msgspec.structs.replace(file, path=f"_staging/job/{file.path}")
    with pytest.raises(LakeError, match="put the lake where all machines have it"):
        lake.told([staged], "job")
    path.parent.mkdir(parents=True)
    shutil.copy(tmp_path / file.path, path)
    assert lake.told([staged], "job") == [staged]
    with path.open("ab") as longer:
        longer.write(b"?")
    with pytest.raises(LakeError, match="the driver does not find it"):
        lake.told([staged], "job")


def test_batches_committed_by_two_at_a_time_are_all_there(
    spark: "SparkSession", tmp_path: Path
) -> None:
    lake = Lake(spark, str(tmp_path))
    other = Lake(spark, str(tmp_path))

    def late(state: State) -> Entry:
        if state.version < 0:  # somebody else comes first
            other.commit(lambda state: Entry(kind="archive", job="b", batch_id=0))
        return Entry(kind="archive", job="a", batch_id=0)

    lake.commit(late)
    assert (lake.state().version, lake.state().batches) == (1, {"a": 0, "b": 0})
    lake.snapshot()
    assert lake.files.names("_manifest") == ["00000000000000000001.snapshot.json"]
    lake.commit(lambda state: Entry(kind="archive", job="a", batch_id=1))
    assert (lake.state().version, lake.state().batches) == (2, {"a": 1, "b": 0})


def test_history_of_a_lake_by_offset_and_time(spark: "SparkSession", written: Path) -> None:
    history = History(spark, ("orders",), lake=str(written))
    queues = [Queue("orders", "broker-a", number) for number in (0, 1)]
    assert history.spans() == dict.fromkeys(queues, Span(0, 12))
    offsets = Bounds(first=4, end=8)
    assert history.spans(offsets) == dict.fromkeys(queues, Span(4, 8))
    assert history.read(bounds=offsets).count() == 8
    hours = Bounds(since_ms=START_MS + 4 * HOUR_S * 1000, until_ms=START_MS + 7 * HOUR_S * 1000)
    assert history.spans(hours) == dict.fromkeys(queues, Span(3, 9))  # files that may have some
    found = history.read(bounds=hours).select("queueOffset").distinct().collect()
    assert sorted(row[0] for row in found) == [4, 5, 6]
    late = Bounds(since_ms=START_MS + 100 * HOUR_S * 1000)
    assert history.read(bounds=late).count() == 0


def test_an_audit_of_a_lake_alone(spark: "SparkSession", lake: Lake, tmp_path: Path) -> None:
    config = audit.Config(topics=("orders",), namesrv="", lake=str(tmp_path))
    sound = audit.run(spark, config)
    assert (sound.findings, sound.facts["messages_read"]) == ((), 24)
    again = message("orders", 0, 20, message_id="orders-0-1")
    add_batch(lake, 9, again)
    found = audit.run(spark, config).findings
    assert found == (
        "topic orders, broker broker-a, queue 0: the lake lacks offsets [12, 20)",
        "topic orders: id orders-0-1 is at broker-a/0/1 and at broker-a/0/20",
    )
    gone = next(iter(lake.state().files))
    (tmp_path / gone).unlink()
    assert f"{gone} is in the manifest and not on disk" in audit.run(spark, config).findings
