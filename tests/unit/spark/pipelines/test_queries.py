"""Queries of pipelines: how they end, and what is said when they fail."""

from typing import Any

import pytest

from ariane.spark.pipelines.manifest import Entry, LakeError, State, begun
from ariane.spark.pipelines.outcome import quietly
from ariane.spark.pipelines.queries import failure, run_query


class Query:
    """A query that somebody interrupts; it writes itself, too."""

    def __init__(self) -> None:
        self.is_stopped = False
        self.recentProgress: list[Any] = []

    def trigger(self, **_: object) -> "Query":
        return self

    def start(self) -> "Query":
        return self

    def awaitTermination(self, _: float) -> bool:  # noqa: N802 - Spark's name
        raise KeyboardInterrupt

    def stop(self) -> None:
        self.is_stopped = True


def test_ctrl_c_ends_what_has_no_other_end_and_breaks_off_what_has() -> None:
    query: Any = Query()
    assert run_query(query, quietly, follow=True) == []
    assert query.is_stopped
    query = Query()
    with pytest.raises(KeyboardInterrupt):
        run_query(query, quietly)
    assert query.is_stopped


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "An error occurred while calling o67.start.\n: java.io.IOException: mkdir failed\n\tat",
            "java.io.IOException: mkdir failed",
        ),
        (
            "An error occurred while calling o67.start.",
            "An error occurred while calling o67.start.",
        ),
        ("[SOME_CLASS] words\n  more", "[SOME_CLASS] words"),
        ("x\nariane.errors.ConfigError: ours\ny", "ours"),
    ],
)
def test_what_went_wrong_in_a_line(text: str, said: str) -> None:
    assert str(failure(RuntimeError(text))) == said


def test_a_place_where_nothing_was_archived_is_no_lake() -> None:
    with pytest.raises(LakeError, match="there is no lake in file:/typo"):
        begun(State(), "file:/typo")
    state = State().apply(0, Entry(kind="archive", job="q", batch_id=0))
    assert begun(state, "file:/lake") is state
