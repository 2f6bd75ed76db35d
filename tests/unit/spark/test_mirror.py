"""The lag of a query in a consumer group."""

from types import SimpleNamespace
from typing import Any

import pytest

from ariane.errors import ConfigError, ConnectionLost
from ariane.spark.mirror import OffsetMirror, group_of_query
from ariane.topics import group_fault
from tests.unit.spark.fakes import A0, FakeCluster

OURS = '{"version": 1, "queues": {"orders": {"broker-a": {"0": 7}}}}'
KAFKAS = '{"orders": {"0": 7}}'


def progress(name: str | None, *offsets: str | None) -> Any:
    sources = [SimpleNamespace(endOffset=offset) for offset in offsets]
    return SimpleNamespace(progress=SimpleNamespace(name=name, id="5b0c", sources=sources))


def test_the_end_of_a_batch_is_mirrored_to_the_querys_own_group() -> None:
    cluster = FakeCluster({})
    mirror = OffsetMirror("127.0.0.1:9876", cluster=cluster)
    mirror.onQueryProgress(progress("archive", OURS))
    mirror.onQueryProgress(progress(None, OURS))
    assert cluster.mirrored == [("spark-archive", {A0: 7}), ("spark-5b0c", {A0: 7})]


def test_other_sources_are_passed_over() -> None:
    cluster = FakeCluster({})
    OffsetMirror("127.0.0.1:9876", cluster=cluster).onQueryProgress(
        progress("join", KAFKAS, None, "null", "not json", OURS)
    )
    assert cluster.mirrored == [("spark-join", {A0: 7})]


def test_one_group_for_all_queries() -> None:
    cluster = FakeCluster({})
    mirror = OffsetMirror("127.0.0.1:9876", group="reports", cluster=cluster)
    mirror.onQueryProgress(progress("archive", OURS))
    assert cluster.mirrored == [("reports", {A0: 7})]
    with pytest.raises(ConfigError, match="may only hold"):
        OffsetMirror("127.0.0.1:9876", group="a b", cluster=cluster)


def test_a_cluster_that_is_away_does_not_trouble_the_query(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = FakeCluster({})

    def fail(group: str, offsets: object) -> None:
        raise ConnectionLost("nobody there")

    cluster.mirror = fail  # type: ignore[method-assign]
    OffsetMirror("127.0.0.1:9876", cluster=cluster).onQueryProgress(progress("archive", OURS))
    assert "not mirrored group=spark-archive: nobody there" in caplog.text


@pytest.mark.parametrize("name", ["a", "daily report (é)", "x" * 500])
def test_any_name_of_a_query_gives_a_legal_group(name: str) -> None:
    group = group_of_query(name, "id")
    assert group_fault(group) is None
    assert group.startswith("spark-")
