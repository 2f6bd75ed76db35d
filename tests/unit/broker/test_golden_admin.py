"""Captured Java and Go clients, replayed: what Apache's broker answered, ours answers in meaning.

Each capture holds only samples, so queues are emptier here than they were there: where an answer
depends on messages that were not captured, its shape is compared, not its numbers.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

from ariane.broker.dispatch import dispatch
from ariane.codes import RequestCode
from ariane.protocol import fastjson
from ariane.protocol.bodies import ConsumeStats, TopicStats
from ariane.protocol.command import Command
from tests.golden.frames import CAPTURES, GoldenFrame, golden_frames
from tests.unit.broker.rig import Peer, Rig

SAME_ANSWER = {
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.GET_TOPIC_CONFIG,
    RequestCode.HEART_BEAT,
    RequestCode.UNREGISTER_CLIENT,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
}
MAKES_OR_DELETES = {RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.DELETE_TOPIC_IN_BROKER}
SAME_SHAPE: dict[RequestCode, type[TopicStats] | type[ConsumeStats]] = {
    RequestCode.GET_TOPIC_STATS_INFO: TopicStats,
    RequestCode.GET_CONSUME_STATS: ConsumeStats,
}


def exchanges(capture: str) -> list[tuple[GoldenFrame, GoldenFrame | None]]:
    """Each request to the broker with its answer, where that was captured."""
    frames = [frame for frame in golden_frames() if frame.capture == capture]
    answers = {
        (frame.connection, frame.header["opaque"]): frame
        for frame in frames
        if frame.sender == "broker" and frame.answers is not None
    }
    asked = [frame for frame in frames if frame.sender == "client"]
    return [(frame, answers.get((frame.connection, frame.header["opaque"]))) for frame in asked]


class Replay:
    """One broker that a whole capture talks to."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.peers = defaultdict[int, Peer](Peer)

    def answer(self, frame: GoldenFrame) -> Command | None:
        """What our broker says to a request."""
        peer = self.peers[frame.connection]
        peer.sent.clear()
        at_once = dispatch(self.rig.state, peer, frame.command())  # type: ignore[arg-type]
        later = [command for command in peer.sent if command.is_response]
        return at_once or (later[0] if later else None)

    def make_topic_of(self, frame: GoldenFrame) -> None:
        """Make a topic whose making was not captured."""
        topic = frame.ext.get("topic")
        if topic and self.rig.state.topics.get(topic) is None:
            self.rig.topic(topic, 8)

    def lacks_members(self, frame: GoldenFrame) -> bool:
        """Whether a list of members is asked for whose heartbeats were not captured."""
        group = frame.ext.get("consumerGroup", "")
        is_list = frame.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP
        return is_list and self.rig.state.clients.consumer_group(group) is None


@pytest.mark.parametrize("capture", CAPTURES)
def test_answers_mean_what_apaches_meant(capture: str) -> None:
    replay = Replay()
    compared = set()
    for frame, theirs in exchanges(capture):
        if frame.code not in SAME_ANSWER | SAME_SHAPE.keys() or replay.lacks_members(frame):
            continue
        if frame.code not in MAKES_OR_DELETES:
            replay.make_topic_of(frame)
        ours = replay.answer(frame)
        if frame.command().is_one_way:
            assert ours is None
        elif theirs is not None and theirs.body_is_whole:
            assert ours is not None
            compare(frame, ours, theirs)
            compared.add(frame.code)
    assert len(compared) >= 6, compared


def compare(frame: GoldenFrame, ours: Command, theirs: GoldenFrame) -> None:
    """Assert that two answers to one request mean the same."""
    assert ours.code == theirs.header["code"], frame
    if frame.code in SAME_ANSWER:
        assert ours.ext == theirs.ext, frame
        assert meaning(ours.body) == meaning(theirs.body), frame
    else:
        kind = SAME_SHAPE[RequestCode(frame.code)]
        ours_read, theirs_read = (fastjson.decode(body, kind) for body in (ours.body, theirs.body))
        assert ours_read.offsets.keys() >= theirs_read.offsets.keys(), frame


def meaning(body: bytes) -> object:
    return fastjson.loads(body) if body else None


def test_a_first_query_of_an_offset_is_not_found_in_apaches_words() -> None:
    replay = Replay()
    found = [
        (frame, theirs)
        for frame, theirs in exchanges("go-client")
        if frame.code == RequestCode.QUERY_CONSUMER_OFFSET and theirs is not None
    ]
    assert len(found) >= 2
    for frame, theirs in found:
        replay.make_topic_of(frame)
        ours = replay.answer(frame)
        assert ours is not None
        assert (ours.code, ours.remark) == (22, theirs.header["remark"])
