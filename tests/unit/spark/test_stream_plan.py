"""What each batch of a stream reads, told as stories of a cluster that changes."""

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ariane.clock import ManualClock
from ariane.errors import ConfigError, DataLoss, RouteNotFound
from ariane.spark.bytes.contract import QueueRange
from ariane.spark.offsets import Queue, StreamOffset, stream_offset_of
from ariane.spark.options import Limits, source_options
from ariane.spark.stream_plan import StreamPlan, limits_with
from tests.unit.spark.fakes import A0, A1, B0, FakeCluster

NO_LIMITS = Limits()


def plan_of(cluster: FakeCluster, clock: ManualClock | None = None, **options: str) -> StreamPlan:
    given_options = {"subscribe": "orders", "namesrv": "127.0.0.1:9876", **options}
    parsed = source_options(given_options, is_stream=True)
    return StreamPlan(parsed, cluster, clock or ManualClock())


def ranges(plan: StreamPlan, start: StreamOffset, end: StreamOffset) -> list[QueueRange]:
    return [one for part in plan.partitions(start, end) for one in part]


def span(queue: Queue, start: int, end: int) -> QueueRange:
    return QueueRange(*queue, start, end)


def test_a_batch_reads_from_where_the_last_one_ended() -> None:
    cluster = FakeCluster({A0: (0, 5), A1: (0, 0)})
    plan = plan_of(cluster, startingOffsets="earliest")
    start = plan.initial()
    assert start == StreamOffset({A0: 0, A1: 0})
    first = plan.latest(start, NO_LIMITS)
    assert ranges(plan, start, first) == [span(A0, 0, 5)]
    assert plan.latest(first, NO_LIMITS) is first  # nothing new
    cluster.set(A1, 0, 3)
    second = plan.latest(first, NO_LIMITS)
    assert ranges(plan, first, second) == [span(A1, 0, 3)]


def test_where_a_query_begins() -> None:
    cluster = FakeCluster({A0: (2, 5), A1: (0, 1)})
    cluster.at_times = {A0: 4, A1: 1}
    assert plan_of(cluster).initial().queues == {A0: 5, A1: 1}
    assert plan_of(cluster, startingOffsets="earliest").initial().queues == {A0: 2, A1: 0}
    told = '{"orders":{"broker-a":{"0":3,"1":-2}}}'
    assert plan_of(cluster, startingOffsets=told).initial().queues == {A0: 3, A1: 0}
    by_time = plan_of(cluster, startingTimestamp="9", startingOffsetsByTimestampStrategy="latest")
    assert by_time.initial().queues == {A0: 4, A1: 1}
    with pytest.raises(ConfigError, match="startingOffsetsByTimestampStrategy=latest"):
        plan_of(cluster, startingTimestamp="9").initial()


def test_an_offset_map_must_fit_the_queues_and_their_ends() -> None:
    cluster = FakeCluster({A0: (0, 5)})
    with pytest.raises(ConfigError, match="not there: topic orders, broker broker-a, queue 1"):
        plan_of(cluster, startingOffsets='{"orders":{"broker-a":{"0":3,"1":0}}}').initial()
    with pytest.raises(DataLoss, match="wanted offset 6, available 5"):
        plan_of(cluster, startingOffsets='{"orders":{"broker-a":{"0":6}}}').initial()


def test_limits_apply_unless_everything_is_asked_for() -> None:
    cluster = FakeCluster({A0: (0, 100), A1: (0, 300)})
    plan = plan_of(cluster, startingOffsets="earliest")
    start = plan.initial()
    assert plan.latest(start, Limits(max_offsets=40)).queues == {A0: 10, A1: 30}
    assert plan.newest == StreamOffset({A0: 100, A1: 300})
    assert plan.latest(start, None).queues == {A0: 100, A1: 300}
    cluster.sizes = {A0: 10.0, A1: 10.0}
    assert plan.latest(start, Limits(max_bytes=400)).queues == {A0: 10, A1: 30}


def test_a_small_batch_waits_for_its_time() -> None:
    clock = ManualClock()
    cluster = FakeCluster({A0: (0, 1)})
    plan = plan_of(cluster, clock, startingOffsets="earliest")
    limits = Limits(min_offsets=10, max_delay_s=60.0)
    start = plan.latest(plan.initial(), limits)
    assert start.queues == {A0: 1}  # the first batch of a run does not wait
    cluster.set(A0, 0, 3)
    assert plan.latest(start, limits) is start
    clock.advance(60)
    assert plan.latest(start, limits).queues == {A0: 3}


def test_available_now_reads_up_to_what_was_there_and_ends() -> None:
    cluster = FakeCluster({A0: (0, 5), A1: (0, 4)})
    plan = plan_of(cluster)
    plan.freeze()
    cluster.set(A0, 0, 50)  # comes too late
    cluster.set(B0, 0, 7)  # a queue that comes too late
    start = StreamOffset({A0: 1})  # A1 was added while the query did not run
    limits = Limits(max_offsets=4, min_offsets=3)
    seen = []
    for _ in range(10):
        end = plan.latest(start, limits)
        if end is start:
            break
        seen += ranges(plan, start, end)
        start = end
    assert start.queues == {A0: 5, A1: 4}
    read = {queue: [one for one in seen if one.queue_id == queue.queue_id] for queue in (A0, A1)}
    assert sorted(n for one in read[A0] for n in range(one.start, one.end)) == [1, 2, 3, 4]
    assert sorted(n for one in read[A1] for n in range(one.start, one.end)) == [0, 1, 2, 3]


def test_a_new_queue_starts_at_its_earliest_message() -> None:
    cluster = FakeCluster({A0: (0, 5)})
    plan = plan_of(cluster)  # latest; but that is only where the query began
    start = plan.initial()
    cluster.set(A1, 2, 6)
    end = plan.latest(start, NO_LIMITS)
    assert end == StreamOffset({A0: 5, A1: 6}, added={A1: 2})
    assert ranges(plan, start, end) == [span(A1, 2, 6)]


def test_a_batch_with_a_new_queue_is_replayed_from_the_same_offset() -> None:
    cluster = FakeCluster({A0: (0, 5), A1: (0, 6)})
    start = StreamOffset({A0: 5})
    end = plan_of(cluster).latest(start, NO_LIMITS)
    again = stream_offset_of(json.loads(json.dumps(end.json())))  # from the checkpoint
    cluster.set(A1, 3, 9)  # retention has passed meanwhile
    with pytest.raises(DataLoss, match="wanted offset 0, available 3"):
        plan_of(cluster).partitions(start, again)
    lenient = plan_of(cluster, failOnDataLoss="false")
    assert ranges(lenient, start, again) == [span(A1, 3, 6)]


def test_an_empty_new_queue_makes_no_batch() -> None:
    cluster = FakeCluster({A0: (0, 5)})
    start = StreamOffset({A0: 5})
    cluster.set(A1, 0, 0)
    assert plan_of(cluster).latest(start, NO_LIMITS) is start


def test_a_removed_queue_fails_or_is_left_where_it_was(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster({A0: (0, 9)})
    start = StreamOffset({A0: 5, A1: 7})
    with pytest.raises(DataLoss, match=r"queue 1: wanted offset 7.*removed"):
        plan_of(cluster).latest(start, NO_LIMITS)
    plan = plan_of(cluster, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "ariane.spark"):
        end = plan.latest(start, NO_LIMITS)
        assert plan.latest(end, NO_LIMITS) is end
    assert caplog.text.count("queue gone") == 1
    assert cluster.known[-1] == {A0}  # nobody waits for it any more
    assert end.queues == {A0: 9, A1: 7}
    assert ranges(plan, start, end) == [span(A0, 5, 9)]
    cluster.set(A1, 0, 8)  # it comes back, and nothing of it is read twice
    assert ranges(plan, end, plan.latest(end, NO_LIMITS)) == [span(A1, 7, 8)]


def test_a_broker_that_is_away_is_not_data_loss_but_nothing_is_read_without_it() -> None:
    cluster = FakeCluster({A0: (0, 9)})
    cluster.away = frozenset({"broker-b"})
    start = StreamOffset({A0: 5, B0: 7})
    with pytest.raises(RouteNotFound, match=r"broker-b, queue 0.*offset 7.*start it"):
        plan_of(cluster).latest(start, NO_LIMITS)
    plan = plan_of(cluster, failOnDataLoss="false")
    assert plan.latest(start, NO_LIMITS).queues == {A0: 9, B0: 7}


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_topic_deleted_and_created_again_is_always_an_error(fails: str) -> None:
    cluster = FakeCluster({A0: (0, 3)})
    plan = plan_of(cluster, failOnDataLoss=fails)
    with pytest.raises(DataLoss, match=r"wanted offset 5, available 3.*created again"):
        plan.latest(StreamOffset({A0: 5}), NO_LIMITS)
    with pytest.raises(DataLoss, match="wanted offset 5, available 3"):
        plan.partitions(StreamOffset({A0: 1}), StreamOffset({A0: 5}))  # a batch replayed


def test_retention_passing_under_a_query_fails_or_steps_over() -> None:
    cluster = FakeCluster({A0: (8, 12)})
    start = StreamOffset({A0: 5})
    strict = plan_of(cluster)
    with pytest.raises(DataLoss, match="wanted offset 5, available 8"):
        strict.partitions(start, strict.latest(start, NO_LIMITS))
    lenient = plan_of(cluster, failOnDataLoss="false")
    assert ranges(lenient, start, lenient.latest(start, NO_LIMITS)) == [span(A0, 8, 12)]
    limited = lenient.latest(start, Limits(max_offsets=2))  # of those that are there
    assert ranges(lenient, start, limited) == [span(A0, 8, 10)]


def test_a_topic_that_the_options_choose_no_more_is_as_good_as_removed() -> None:
    cluster = FakeCluster({A0: (0, 9)})
    start = StreamOffset({A0: 5, Queue("payments", "broker-a", 0): 7})
    with pytest.raises(DataLoss, match=r"topic payments.*not chosen any more"):
        plan_of(cluster).latest(start, NO_LIMITS)


def test_a_replayed_batch_of_a_queue_that_is_gone() -> None:
    cluster = FakeCluster({A0: (0, 9)})
    start, end = StreamOffset({A0: 5, A1: 0}), StreamOffset({A0: 9, A1: 4})
    with pytest.raises(DataLoss, match=r"queue 1.*removed"):
        plan_of(cluster).partitions(start, end)
    lenient = plan_of(cluster, failOnDataLoss="false")
    assert ranges(lenient, start, end) == [span(A0, 5, 9)]


def test_partitions_may_be_limited_by_bytes() -> None:
    cluster = FakeCluster({A0: (0, 10)})
    cluster.sizes = {A0: 100.0}
    plan = plan_of(cluster, maxBytesPerPartition="500")
    assert len(plan.partitions(StreamOffset({A0: 0}), StreamOffset({A0: 10}))) == 2


def test_what_spark_asks_for_goes_before_the_options() -> None:
    limits = Limits(max_offsets=5)
    assert limits_with(limits, max_bytes=7) == Limits(max_offsets=5, max_bytes=7)
    assert limits_with(limits, max_rows=9, min_rows=2) == Limits(max_offsets=9, min_offsets=2)


@given(st.data())
def test_however_a_cluster_grows_every_message_is_read_once_in_order(data: st.DataObject) -> None:
    queues = [A0, A1, B0]
    ends = dict.fromkeys([A0], 0)
    cluster = FakeCluster({A0: (0, 0)})
    plan = plan_of(cluster, startingOffsets="earliest")
    start = plan.initial()
    read: dict[Queue, list[int]] = {queue: [] for queue in queues}
    for _ in range(data.draw(st.integers(1, 12))):
        if data.draw(st.booleans()):
            queue = data.draw(st.sampled_from(queues))
            ends[queue] = ends.get(queue, 0) + data.draw(st.integers(0, 20))
            cluster.set(queue, 0, ends[queue])
        limit = data.draw(st.sampled_from([None, Limits(max_offsets=5), Limits(max_offsets=50)]))
        end = plan.latest(start, limit)
        if data.draw(st.booleans()):  # the process dies, and the checkpoint alone goes on
            plan = plan_of(cluster)
            start, end = (
                stream_offset_of(json.loads(json.dumps(offset.json()))) for offset in (start, end)
            )
        for one in ranges(plan, start, end):
            queue = Queue(one.topic, one.broker, one.queue_id)
            read[queue] += range(one.start, one.end)
        start = end
    last = plan.latest(start, None)
    for one in ranges(plan, start, last):
        read[Queue(one.topic, one.broker, one.queue_id)] += range(one.start, one.end)
    assert read == {queue: list(range(ends.get(queue, 0))) for queue in queues}


def test_a_topic_that_was_made_anew_and_has_grown_past_the_offset_is_told_by_its_age(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = FakeCluster({A0: (0, 5), B0: (0, 5)})
    cluster.stored_ms = {"broker-a": 1000, "broker-b": 7000}
    plan = plan_of(cluster, startingOffsets="earliest")
    read = plan.latest(plan.initial(), Limits(max_offsets=4))
    assert stream_offset_of(json.loads(json.dumps(read.json()))) == read

    cluster.oldest = {A0: 900, B0: 6000}
    cluster.stored_ms = {"broker-a": 500, "broker-b": 8000}  # a clock that was set back
    assert plan_of(cluster).latest(read, NO_LIMITS).stored_ms == {
        "broker-a": 1000,
        "broker-b": 8000,
    }
    cluster.oldest = {A0: 1001, B0: 6000}
    with pytest.raises(DataLoss, match=r"queue 0: wanted offset 2, available 0.*grown past it"):
        plan_of(cluster).latest(read, NO_LIMITS)
    with pytest.raises(DataLoss, match="deleted and created again"):
        plan_of(cluster).partitions(StreamOffset({A0: 0, B0: 0}), read)  # a batch played again
    lenient = plan_of(cluster, failOnDataLoss="false")
    assert lenient.latest(read, NO_LIMITS).queues == {A0: 5, B0: 5}
    assert "queue replaced topic orders, broker broker-a, queue 0 wanted=2" in caplog.text


def test_a_running_query_asks_for_the_age_of_queues_only_after_a_while() -> None:
    clock = ManualClock()
    cluster = FakeCluster({A0: (0, 5)})
    cluster.stored_ms = {"broker-a": 1000}
    plan = plan_of(cluster, clock, startingOffsets="earliest")
    read = plan.latest(plan.initial(), NO_LIMITS)
    cluster.oldest = {A0: 2000}
    assert plan.latest(read, NO_LIMITS) is read
    clock.advance(10)
    with pytest.raises(DataLoss, match="created again"):
        plan.latest(read, NO_LIMITS)
