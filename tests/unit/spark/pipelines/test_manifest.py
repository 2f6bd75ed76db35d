"""The manifest's state: what entries add up to, and which it does not take."""

import msgspec
import pytest

from ariane.spark.offsets import Queue
from ariane.spark.pipelines.manifest import Entry, FileRange, LakeError, LakeFile, State
from ariane.spark.pipelines.ranges import Span


def file(
    path: str, first: int, end: int, *, queue_id: int = 0, day: str = "2026-11-16"
) -> LakeFile:
    held = FileRange("broker-a", queue_id, first, end, end - first, 7)
    return LakeFile(path, "orders", day, 100, 0, 1, (held,))


def archived(job: str, batch_id: int, *files: LakeFile) -> Entry:
    return Entry(kind="archive", job=job, batch_id=batch_id, add=files)


def test_batches_add_up_and_a_replayed_one_is_known() -> None:
    state = State().apply(0, archived("query", 0, file("a", 0, 10)))
    state.apply(1, archived("query", 1, file("b", 10, 20)))
    assert state.ends() == {Queue("orders", "broker-a", 0): 20}
    assert state.has(archived("query", 1))
    assert not state.has(archived("query", 2))
    assert not state.has(archived("another", 0))


def test_a_missing_entry_is_noticed() -> None:
    with pytest.raises(LakeError, match="lacks entry 0; next is 1"):
        State().apply(1, archived("query", 0))


def test_the_same_offsets_twice_are_refused() -> None:
    state = State().apply(0, archived("query", 0, file("a", 0, 10)))
    fault = state.fault(archived("another", 0, file("b", 8, 12)))
    assert fault is not None
    assert "offsets [8, 10) are in a and in b" in fault
    assert state.fault(archived("another", 0, file("b", 10, 12))) is None
    assert state.fault(archived("another", 0, file("b", 0, 12, queue_id=1))) is None


def test_days_may_interlock_when_a_clock_was_set_back() -> None:
    state = State().apply(0, archived("query", 0, file("a", 0, 10)))
    assert state.fault(archived("query", 1, file("b", 5, 6, day="2026-11-15"))) is None


def test_a_compaction_swaps_files() -> None:
    state = State().apply(0, archived("query", 0, file("a", 0, 10), file("b", 10, 20)))
    state.apply(1, Entry(kind="begin", job="c"))
    swap = Entry(kind="compact", job="c", add=(file("ab", 0, 20),), remove=("a", "b"))
    assert state.fault(swap) is None
    state.apply(2, swap)
    assert state.queue_spans() == {Queue("orders", "broker-a", 0): [Span(0, 20)]}
    assert state.removed == {"a", "b"}
    assert state.jobs == set()


def test_a_compaction_that_was_given_up_cannot_end() -> None:
    state = State().apply(0, archived("query", 0, file("a", 0, 10)))
    state.apply(1, Entry(kind="begin", job="c")).apply(2, Entry(kind="give_up", job="c"))
    swap = Entry(kind="compact", job="c", add=(file("x", 0, 10),), remove=("a",))
    assert state.fault(swap) == "compaction c was given up by another one"


def test_a_compaction_of_files_that_are_gone_cannot_end() -> None:
    state = State().apply(0, Entry(kind="begin", job="c"))
    swap = Entry(kind="compact", job="c", add=(file("x", 0, 10),), remove=("a",))
    assert state.fault(swap) == "a is not in the lake any more; compact again"


def test_a_state_is_kept_and_read_again() -> None:
    state = State().apply(0, archived("query", 3, file("a", 0, 10)))
    state.apply(1, Entry(kind="begin", job="c"))
    assert msgspec.json.decode(msgspec.json.encode(state), type=State) == state
