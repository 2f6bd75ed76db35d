"""Batches through the door of the broker: staged, published, refused, cut short, resumed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ariane.broker.staging import publishing, service
from ariane.codes import RequestCode, ResponseCode
from ariane.disk import CrashMode
from ariane.errors import DiskFull
from ariane.protocol.bodies.staging import BatchPlan, ChunkReference
from ariane.protocol.message import BatchEntry, encode_batch
from ariane.topics import STAGING_TOPIC
from tests.unit.broker.rig import SMALL_STORE
from tests.unit.broker.staging.world import BROKER, QUERY, StagingWorld, batch_body


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def test_staged_rows_are_seen_by_nobody_until_they_are_published() -> None:
    world = StagingWorld()
    first = world.chunk(names("a", 3))
    second = world.chunk(names("b", 2), queue_id=1, partition=1)
    assert world.rows(0) == world.rows(1) == []
    answer = world.publish([first, second])
    assert answer.code == ResponseCode.SUCCESS
    assert (answer.ext["state"], answer.ext["rows"]) == ("published", "5")
    assert world.rows(0) == names("a", 3)
    assert world.rows(1) == names("b", 2)


def test_a_batch_published_again_changes_nothing_whatever_its_plan() -> None:
    world = StagingWorld()
    first = world.chunk(names("a", 3))
    assert world.publish([first]).code == ResponseCode.SUCCESS
    again = world.chunk(names("a", 3), attempt=7)
    answer = world.publish([again])
    assert answer.ext["state"] == "published"
    plan = msgspec.json.decode(answer.body, type=BatchPlan)
    assert plan.brokers[BROKER] == [first], "the plan that counts is told"
    assert world.rows() == names("a", 3)
    for older in range(3):
        chunk = world.chunk([f"batch{older}"], batchId=older + 1)
        assert world.publish([chunk], batch=older + 1).code == ResponseCode.SUCCESS
    assert world.publish([first]).ext["state"] == "published"
    assert world.rows() == [*names("a", 3), "batch0", "batch1", "batch2"]


def test_other_attempts_are_never_published() -> None:
    world = StagingWorld()
    world.chunk(names("failed", 3), attempt=1)
    chosen = [
        world.chunk(names("a", 2), attempt=2),
        world.chunk(names("b", 2), attempt=2, sequence=1),
    ]
    world.chunk(names("speculative", 3), attempt=3)
    assert world.publish(chosen).code == ResponseCode.SUCCESS
    assert world.rows() == names("a", 2) + names("b", 2)


def test_rows_of_another_type_than_the_topic_declares() -> None:
    world = StagingWorld()
    world.rig.topic("T", attributes={"message.type": "FIFO"})
    assert world.stage(["any"]).code == ResponseCode.SUCCESS
    world.rig.configure(checks_message_types=True)
    assert world.stage(["any"], sequence=1).code == ResponseCode.MESSAGE_ILLEGAL


def test_a_plan_of_two_attempts_of_a_partition_is_refused() -> None:
    world = StagingWorld()
    chunks = [world.chunk(["a"], attempt=1), world.chunk(["b"], attempt=2, sequence=1)]
    answer = world.publish(chunks)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "attempts 1 and 2 for partition 0" in (answer.remark or "")
    assert world.rows() == []


def test_a_plan_that_leaves_a_chunk_out_is_refused() -> None:
    world = StagingWorld()
    chunks = [world.chunk([str(n)], sequence=n) for n in range(3)]
    answer = world.publish([chunks[0], chunks[2]])
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "chunk 2 of partition 0 where chunk 1 belongs" in (answer.remark or "")
    assert world.publish(chunks).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("fields", "code", "said"),
    [
        ({"crc32": 1}, ResponseCode.MESSAGE_ILLEGAL, "CRC-32"),
        ({"rows": 4}, ResponseCode.MESSAGE_ILLEGAL, "has 3 rows and says 4"),
        ({"queueId": 9}, ResponseCode.INVALID_PARAMETER, "illegal"),
        ({"queueId": -1}, ResponseCode.INVALID_PARAMETER, "names the queue"),
        ({"topic": STAGING_TOPIC}, ResponseCode.NO_PERMISSION, "forbidden"),
        ({"topic": "a/b"}, ResponseCode.INVALID_PARAMETER, "may only hold"),
        ({"queryId": "a b"}, ResponseCode.INVALID_PARAMETER, "queryId"),
        ({"queryId": "q" * 129}, ResponseCode.INVALID_PARAMETER, "queryId"),
        ({"batchId": -1}, ResponseCode.INVALID_PARAMETER, "count from 0"),
        ({"attempt": -1}, ResponseCode.INVALID_PARAMETER, "count from 0"),
        ({"body": b"\0\0\0\x09garbage"}, ResponseCode.MESSAGE_ILLEGAL, "row 0 do not add up"),
        ({"body": b"x" * (5 << 20)}, ResponseCode.MESSAGE_ILLEGAL, "bytes"),
        (
            {"body": batch_body(names("a", 3), properties="MSG_REGION\x01x\x02")},
            ResponseCode.MESSAGE_ILLEGAL,
            "row 0 has a property that is the broker's",
        ),
        (
            {"body": encode_batch([BatchEntry(flag=0, body=b"", properties="")])},
            ResponseCode.MESSAGE_ILLEGAL,
            "row 0 has no body",
        ),
        (
            {"body": batch_body(names("a", 3), properties=f"TIMER_DELIVER_MS\x01{1 << 60}\x02")},
            ResponseCode.MESSAGE_ILLEGAL,
            "timerMaxDelaySec",
        ),
    ],
)
def test_a_chunk_that_could_not_be_published_is_refused_at_once(
    fields: dict[str, Any], code: ResponseCode, said: str
) -> None:
    world = StagingWorld()
    answer = world.stage(names("a", 3), **fields)
    assert answer.code == code, answer.remark
    assert said in (answer.remark or "")


def test_a_plan_must_find_what_it_names() -> None:
    world = StagingWorld()
    chunk = world.chunk(names("a", 3))
    other = world.chunk(names("b", 3), queryId="another")
    wrong: list[tuple[ChunkReference, str]] = [
        (ChunkReference(99, 3, chunk.crc32), "not in the log"),
        (ChunkReference(-1, 3, chunk.crc32), "not in the log"),
        (ChunkReference(chunk.offset, 3, 1), "other rows"),
        (ChunkReference(chunk.offset, 2, chunk.crc32), "has 3 rows, not 2"),
        (other, "of batch 0 of another"),
    ]
    for reference, said in wrong:
        answer = world.publish([reference])
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
        assert said in (answer.remark or "")
    assert world.rows() == []
    assert world.publish([chunk]).code == ResponseCode.SUCCESS


def test_what_is_no_plan_is_refused() -> None:
    world = StagingWorld()
    for body, said in ((b"{", "cannot be read"), (b'{"brokers":{"":[]}}', "names of brokers")):
        answer = world.rig.call(RequestCode.PUBLISH_BATCH, {"queryId": QUERY, "batchId": 0}, body)
        assert answer is not None
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert said in (answer.remark or "")
    assert world.publish([], keepHours=0).code == ResponseCode.INVALID_PARAMETER


def test_nobody_sends_to_the_staging_topic_or_reads_it() -> None:
    world = StagingWorld()
    world.chunk(["secret"])
    assert world.rig.send(topic=STAGING_TOPIC).code == ResponseCode.NO_PERMISSION
    world.rig.subscribe("readers", STAGING_TOPIC)
    answer = world.rig.pull(STAGING_TOPIC)
    assert answer is not None
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert world.rig.state.topics.get(STAGING_TOPIC) is None, "it is in no list"
    for code in (RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.UPDATE_AND_CREATE_TOPIC):
        fields = {"topic": STAGING_TOPIC, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        more = {"defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "order": "false"}
        refused = world.rig.call(code, fields | more)
        assert refused is not None
        assert refused.code != ResponseCode.SUCCESS
    world.rig.call(RequestCode.CLEAN_UNUSED_TOPIC)
    assert STAGING_TOPIC in world.rig.state.store.topics(), "nor is it cleaned away"


def test_other_clients_have_their_turn_while_a_batch_is_published(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publishing, "ROWS_AT_ONCE", 10)
    monkeypatch.setattr(service, "SLICE_S", 0.0)  # one step a turn
    world = StagingWorld()
    chunk = world.chunk(names("a", 100))
    peer = world.ask_to_publish([chunk])
    seen = []
    for _ in range(30):
        world.state.staging.turn()
        seen.append(len(world.rows()))
        world.rig.send("T", 1, body=b"other")
    assert {10, 20, 30, 90, 100} <= set(seen), "a little at a time"
    assert world.rows() == names("a", 100)
    assert peer.sent[0].code == ResponseCode.SUCCESS


def test_two_who_ask_for_the_same_batch_are_both_answered() -> None:
    world = StagingWorld()
    chunk = world.chunk(names("a", 10))
    peers = [world.ask_to_publish([chunk]) for _ in range(3)]
    world.clock.advance(1)
    assert [peer.sent[0].ext["state"] for peer in peers] == ["published"] * 3
    assert world.rows() == names("a", 10)


def test_the_next_batch_waits_until_the_one_before_is_published(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "SLICE_S", 0.0)
    world = StagingWorld()
    chunk, later = world.chunk(names("a", 10)), world.chunk(["later"], batchId=1)
    world.state.topics.delete("T")
    assert world.publish([chunk]).code == ResponseCode.TOPIC_NOT_EXIST, "before it is decided"
    world.rig.topic("T")
    world.ask_to_publish([chunk])
    world.state.staging.turn()  # decided
    world.state.topics.delete("T")
    answer = world.publish([later], batch=1)
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert "batch 0" in (answer.remark or "") and "still being published" in (answer.remark or "")
    assert world.call(RequestCode.DISCARD_BATCH, batchId=1).code == ResponseCode.ILLEGAL_OPERATION
    world.rig.topic("T")
    assert world.publish([chunk]).code == ResponseCode.SUCCESS
    assert world.publish([later], batch=1).code == ResponseCode.SUCCESS
    assert world.rows() == [*names("a", 10), "later"]


def test_a_topic_deleted_halfway_is_told_and_the_rest_follows_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publishing, "ROWS_AT_ONCE", 10)
    monkeypatch.setattr(service, "SLICE_S", 0.0)
    world = StagingWorld()
    world.rig.topic("U")
    chunks = [
        world.chunk(names("a", 20)),
        world.chunk(names("b", 20), topic="U", sequence=1),
        world.chunk(names("c", 20), queue_id=1, sequence=2),
    ]
    peer = world.ask_to_publish(chunks)
    while len(world.rows(0, "U")) < 10:
        world.state.staging.turn()
    world.rig.topic("U", permission=4)  # read-only
    for _ in range(5):
        world.state.staging.turn()
    assert peer.sent[0].code == ResponseCode.NO_PERMISSION
    assert "U" in (peer.sent[0].remark or "")
    assert world.rows(1) == []
    assert world.publish(chunks).code == ResponseCode.NO_PERMISSION
    world.kill()
    world.rig.topic("U", permission=6)
    assert world.publish(chunks).code == ResponseCode.SUCCESS
    assert world.rows(0) == names("a", 20)
    assert world.rows(0, "U") == names("b", 20)
    assert world.rows(1) == names("c", 20)


def test_a_full_disk_is_told_and_the_rest_follows_when_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publishing, "ROWS_AT_ONCE", 10)
    monkeypatch.setattr(service, "SLICE_S", 0.0)
    world = StagingWorld()
    chunk = world.chunk(names("a", 100))
    peer = world.ask_to_publish([chunk])
    while len(world.rows()) < 50:
        world.state.staging.turn()
    world.state.store.disk_full_reason = "the disk is full"
    for _ in range(5):
        world.state.staging.turn()
    assert peer.sent[0].code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "the disk is full" in (peer.sent[0].remark or "")
    assert world.publish([chunk]).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert len(world.rows()) == 50
    world.state.store.disk_full_reason = None
    world.clock.advance(service.RETRY_S)  # nobody need ask again
    assert world.rows() == names("a", 100)
    assert world.publish([chunk]).ext["state"] == "published"


def test_no_room_for_the_next_segment_leaves_what_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publishing, "ROWS_AT_ONCE", 100)
    world = StagingWorld(msgspec.structs.replace(SMALL_STORE, segment_bytes=1 << 16))
    rows = names("a", 300)
    chunks = [
        world.chunk(rows[first : first + 100], sequence=first // 100) for first in (0, 100, 200)
    ]
    world.disk.plant("create", DiskFull("no space left"))
    answer = world.publish(chunks)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert world.rows() == rows[: len(world.rows())]
    world.disk.heal()
    assert world.publish(chunks).code == ResponseCode.SUCCESS
    assert world.rows() == rows


def test_rows_that_ask_for_a_time_wait_for_it() -> None:
    world = StagingWorld()
    now_ms = world.clock.wall_ms()
    late = batch_body(names("late", 3), properties=f"TIMER_DELIVER_MS\x01{now_ms + 5000}\x02")
    past = batch_body(names("past", 3), properties=f"TIMER_DELIVER_MS\x01{now_ms - 5000}\x02")
    chunks = [
        world.chunk(names("late", 3), body=late),
        world.chunk(names("past", 3), body=past, sequence=1),
    ]
    assert world.publish(chunks).code == ResponseCode.SUCCESS
    assert world.rows() == names("past", 3)
    waiting = world.state.store.queue("rmq_sys_wheel_timer", 0)
    assert waiting.end == 3


def test_a_discarded_batch_is_never_published() -> None:
    world = StagingWorld()
    chunk = world.chunk(names("a", 3))
    assert world.call(RequestCode.DISCARD_BATCH).ext["state"] == "discarded"
    world.kill()
    answer = world.publish([chunk])
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert "was discarded" in (answer.remark or "")
    assert world.call(RequestCode.DISCARD_BATCH).code == ResponseCode.SUCCESS, "again"
    assert world.rows() == []


def test_a_published_batch_cannot_be_discarded() -> None:
    world = StagingWorld()
    world.publish([world.chunk(names("a", 3))])
    answer = world.call(RequestCode.DISCARD_BATCH)
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert "it is published" in (answer.remark or "")


def test_brokers_of_a_query_are_remembered() -> None:
    world = StagingWorld()
    assert world.call(RequestCode.PUBLISHED_BATCH).ext["state"] == "unknown"
    assert QUERY not in world.state.staging.ledger.queries, "asking alone leaves nothing"
    world.call(RequestCode.PUBLISHED_BATCH, brokers="broker-b,broker-a")
    world.kill(CrashMode.DROP)
    answer = world.call(RequestCode.PUBLISHED_BATCH, brokers="broker-c")
    assert answer.ext["brokers"] == "broker-a,broker-b,broker-c"


def test_the_part_of_other_brokers_is_kept_and_told() -> None:
    world = StagingWorld()
    chunk = world.chunk(["a"])
    elsewhere = ChunkReference(17, 5, 4711)
    plan = BatchPlan({"broker-z": [elsewhere], BROKER: [chunk]})
    assert world.publish([], plan=plan).ext["rows"] == "1"
    world.kill()
    answer = world.call(RequestCode.PUBLISHED_BATCH)
    assert msgspec.json.decode(answer.body, type=BatchPlan) == plan
    assert answer.ext["brokers"] == f"{BROKER},broker-z"


def test_queries_are_forgotten_in_time_and_not_before() -> None:
    world = StagingWorld()
    world.publish([world.chunk(["a"])], keepHours=24)
    world.clock.step_wall(23 * 3_600_000)
    world.state.staging.tidy()
    assert world.publish([], keepHours=24).ext["state"] == "published"
    assert world.call(RequestCode.PUBLISHED_BATCH).ext["state"] == "published"
    world.clock.step_wall(25 * 3_600_000)
    world.state.staging.tidy()
    assert world.call(RequestCode.PUBLISHED_BATCH).ext["state"] == "unknown"


def test_too_many_queries_are_refused_and_none_is_forgotten_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "QUERIES_MAX", 2)
    world = StagingWorld()
    for query in ("one", "two"):
        chunk = world.chunk([query], queryId=query)
        assert world.publish([chunk], query=query).code == ResponseCode.SUCCESS
    chunk = world.chunk(["three"], queryId="three")
    assert world.publish([chunk], query="three").code == ResponseCode.FLOW_CONTROL
    assert world.publish([], query="one").ext["state"] == "published"


def test_the_snapshot_outlives_the_journal() -> None:
    world = StagingWorld()
    chunk = world.chunk(names("a", 3))
    world.publish([chunk])
    world.state.staging.save()
    world.state.store.stop()
    for directory in ("commitlog", "consumequeue", "index"):
        world.disk.remove_tree(directory)
    for path in ("checkpoint", "abort"):
        world.disk.remove(path)
    world.start()
    assert world.call(RequestCode.PUBLISHED_BATCH).ext["state"] == "published"


def test_a_publication_whose_plan_left_with_the_log_is_told_as_cut_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publishing, "ROWS_AT_ONCE", 1)
    monkeypatch.setattr(service, "SLICE_S", 0.0)
    world = StagingWorld()
    chunk = world.chunk(names("a", 30))
    world.ask_to_publish([chunk])
    while len(world.rows()) < 5:
        world.state.staging.turn()
    world.state.staging.save()
    world.state.store.stop()
    for directory in ("commitlog", "consumequeue", "index"):
        world.disk.remove_tree(directory)
    for path in ("checkpoint", "abort"):
        world.disk.remove(path)
    world.start()
    answer = world.publish([chunk])
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert "published in part" in (answer.remark or "")


def test_the_answer_waits_for_the_disk() -> None:
    world = StagingWorld()
    chunk = world.chunk(names("a", 3))
    world.disk.plant("sync", OSError("the disk is broken"))
    answer = world.publish([chunk])
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE


def test_rows_staged_too_long_ago_are_gone_and_that_is_told() -> None:
    world = StagingWorld(msgspec.structs.replace(SMALL_STORE, segment_bytes=1 << 16))
    chunk = world.chunk(names("a", 3))
    for _ in range(3):
        world.rig.send("T", 1, body=b"x" * 60_000)
    world.state.store.checkpoint()
    world.clock.step_wall(100 * 3_600_000)
    for name, _ in world.disk.names("commitlog"):
        world.disk.set_modified_s(f"commitlog/{name}", 0.0)
    assert world.state.store.clean(is_asked=True) > 0
    answer = world.publish([chunk])
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    assert "was removed with its segment" in (answer.remark or "")
    again = world.chunk(names("a", 3), attempt=1)
    assert world.publish([again]).code == ResponseCode.SUCCESS
    assert world.rows() == names("a", 3)
