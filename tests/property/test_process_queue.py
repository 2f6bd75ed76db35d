"""Whatever finishes in whatever order: a commit never passes a message that is being worked on."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ariane.client.process_queue import Limits, ProcessQueue
from ariane.client.received import ReceivedMessage
from ariane.client.records import decode
from ariane.protocol.message_queue import MessageQueue
from tests.unit.client.fake import record

QUEUE = MessageQueue(topic="orders", broker_name="a", queue_id=0)


class Model(RuleBasedStateMachine):
    """The obvious twin: a set of offsets that are not finished."""

    @initialize(first=st.integers(0, 1 << 40))
    def begin(self, first: int) -> None:
        self.queue = ProcessQueue(QUEUE, first, now_s=0)
        self.unfinished: dict[int, ReceivedMessage] = {}
        self.finished: list[ReceivedMessage] = []
        self.position = first
        self.committed = first
        self.dropped_at: int | None = None

    @rule(gaps=st.lists(st.integers(0, 3), max_size=8), tail=st.integers(0, 5))
    def pull(self, gaps: list[int], tail: int) -> None:
        offset = self.position
        data = []
        for gap in gaps:
            data.append(record(b"b" * gap, queue_offset=offset + gap))
            offset += gap + 1
        messages = decode(b"".join(data), ReceivedMessage)
        new = self.queue.put(messages, offset + tail, now_s=0)
        if self.dropped_at is None:
            assert new == messages
            self.unfinished |= {message.queue_offset: message for message in messages}
            self.position = offset + tail
        else:
            assert new == []

    @precondition(lambda self: self.unfinished)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        message = data.draw(st.sampled_from(list(self.unfinished.values())))
        counted = self.queue.finish(message)
        assert counted == (self.dropped_at is None)
        if counted:
            del self.unfinished[message.queue_offset]
            self.finished.append(message)

    @precondition(lambda self: self.finished)
    @rule(data=st.data())
    def finish_again(self, data: st.DataObject) -> None:
        assert not self.queue.finish(data.draw(st.sampled_from(self.finished)))

    @precondition(lambda self: self.dropped_at is None)
    @rule()
    def drop(self) -> None:
        self.dropped_at = min(self.unfinished, default=self.position)
        assert self.queue.drop() == self.dropped_at

    @invariant()
    def commits_wait_for_the_oldest(self) -> None:
        if not hasattr(self, "queue"):
            return
        expected = min(self.unfinished, default=self.position)
        if self.dropped_at is not None:
            expected = self.dropped_at
        assert self.queue.commit_offset == expected
        assert self.queue.commit_offset >= self.committed  # and never go back
        self.committed = self.queue.commit_offset

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "queue") or self.dropped_at is not None:
            return
        assert self.queue.message_count == len(self.unfinished)
        assert self.queue.byte_count == sum(m.size for m in self.unfinished.values())
        assert [m.queue_offset for m in self.queue] == sorted(self.unfinished)
        span = self.queue.span
        assert (self.queue.fullness(Limits(span_max=span)) is None) and (
            span == 0 or self.queue.fullness(Limits(span_max=span - 1)) is not None
        )


TestProcessQueue = Model.TestCase
TestProcessQueue.settings = settings(max_examples=40, stateful_step_count=20)
