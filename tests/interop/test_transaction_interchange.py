"""One store directory with open transactions, passed between Apache's broker and ours.

Whoever has the store asks about what is open, and about nothing that has ended; what is committed
is delivered once, whichever broker the half message was sent to and whichever copied it.

Apache's broker notes an end a while later, and a round that comes in between asks about it all the
same, from a copy that the note does not name. On a slow machine that happens; so a store is passed
on once a whole round has asked about nothing but what is open.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.harness.apache import broker_on
from tests.harness.processes import wait_until
from tests.harness.transactions import COMMIT, ROLLBACK, Check, Half, Producer

pytestmark = pytest.mark.interop

TOPIC, GROUP = "Transfers", "transfer-producers"
HALF_TOPIC, NOTE_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
SETTINGS: dict[str, object] = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20 * 500,
    "maxHashSlotNum": 5000,
    "maxIndexNum": 20_000,
    "transactionTimeOut": 1_000,
    "transactionCheckInterval": 1_000,
    "transactionCheckMax": 100,
    "transactionOpBatchInterval": 100,
}


def begin(producer: Producer, prefix: str) -> dict[str, Half]:
    """Transactions of every kind; those named for an end are ended at once."""
    halves = {}
    for number in range(12):
        kind = ("commit", "rollback", "open", "open")[number % 4]
        key = f"{prefix}-{kind}-{number}"
        more = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "4"} if number >= 8 else {}
        halves[key] = producer.begin(TOPIC, 0, key.encode(), key=key, **more)
        if kind != "open":
            assert producer.end(halves[key], COMMIT if kind == "commit" else ROLLBACK).code == 0
    return halves


def delivered(producer: Producer) -> Counter[str]:
    return Counter(record.body.decode() for record in producer.read_queue(TOPIC, 0))


def asked_twice(
    producer: Producer, expected: set[str], answer: Callable[[Check], None] = lambda check: None
) -> Counter[str]:
    """How often was asked about what, until all that is expected was asked about twice.

    So whatever is not to be asked about would have been by now. The second question is answered
    when it comes, as clients do: a while later there may be a newer copy.
    """
    times: Counter[str] = Counter()
    deadline = time.monotonic() + 60
    while not expected <= {key for key in times if times[key] >= 2}:
        assert time.monotonic() < deadline, f"asked {times}, expected {expected}"
        for check in producer.checks(seconds=1):
            assert (check.record.topic, check.record.queue_id) == (TOPIC, 0)
            assert check.record.body.decode() == check.half.key
            times[check.half.key] += 1
            if times[check.half.key] == 2:
                answer(check)
    return times


def noted(producer: Producer) -> set[int]:
    """The half offsets that the operation queue names as ended."""
    bodies = b"".join(note.body for note in producer.read_queue(NOTE_TOPIC, 0))
    return {int(text) for text in bodies.decode().split(",") if text}


@dataclass
class Books:
    """What the producer knows of its transactions, whichever broker it talks to."""

    is_open: set[str] = field(default_factory=set)
    committed: set[str] = field(default_factory=set)
    halves: dict[str, Half] = field(default_factory=dict)  # as first sent

    def answer_some(self, producer: Producer, kind: str) -> None:
        """Be asked about all that is open, and commit most of it, some by the half first sent."""
        expected = sorted(self.is_open)
        committing = {key for number, key in enumerate(expected) if number % 3}
        # Apache's broker does not know a first half again once there is a copy.
        by_first = set(expected[1::2]) if kind == "ariane" else set()

        def answer(check: Check) -> None:
            key = check.half.key
            if key in committing:
                half = self.halves[key] if key in by_first else check.half
                assert producer.end(half, COMMIT, answers_check=True).code == 0

        times = asked_twice(producer, set(expected), answer)
        assert times.keys() == set(expected)
        self.committed |= committing
        self.is_open -= committing

    def begin(self, producer: Producer, prefix: str) -> None:
        """Begin more transactions, and see their ends noted and delivered."""
        begun = begin(producer, prefix)
        self.halves |= begun
        self.is_open |= {key for key in begun if "open" in key}
        self.committed |= {key for key in begun if "commit" in key}
        ended = {half.queue_offset for key, half in begun.items() if "open" not in key}
        wait_until(lambda: ended <= noted(producer), "the notes")
        wait_until(lambda: delivered(producer) == Counter(self.committed), "the deliveries")

    def see_a_whole_round(self, producer: Producer, kind: str, *, marker: str) -> None:
        """Wait for a round, from one question about the marker to the next, without an ended one.

        What Apache's broker asks about too late is put an end to by the copy it asks with. By now
        some are copied, and some have asked for more time than that.
        """
        assert marker in self.is_open
        producer.asked.clear()  # those were read before the last end was answered
        is_clean = False
        deadline = time.monotonic() + 60
        while True:
            assert time.monotonic() < deadline, f"asked {producer.asked} of what has ended"
            for check in producer.checks(seconds=1):
                if check.half.key not in self.is_open:
                    assert kind == "apache", f"asked about {check.half.key}, which has ended"
                    producer.end(check.half, ROLLBACK, answers_check=True)
                    is_clean = False
                elif check.half.key == marker and is_clean:
                    return
                elif check.half.key == marker:
                    is_clean = True


@pytest.mark.parametrize(
    ("first", "ending"), [("ariane", "stop"), ("ariane", "kill"), ("apache", "kill")]
)
def test_open_transactions_pass_between_brokers(first: str, ending: str, scratch: Path) -> None:
    second = "apache" if first == "ariane" else "ariane"
    books = Books()
    for turn, kind in enumerate([first, second, first]):
        with (
            broker_on(kind, scratch, turn).start(**SETTINGS) as server,
            Producer(server.broker, GROUP) as producer,
        ):
            if turn == 0:
                producer.create_topic(TOPIC, 1)
            producer.heartbeat()
            books.answer_some(producer, kind)
            books.begin(producer, f"t{turn}")
            books.see_a_whole_round(producer, kind, marker=f"t{turn}-open-2")
            assert delivered(producer) == Counter(books.committed)
            if ending == "stop":
                server.stop()
            else:
                server.kill()


def test_apache_s_lost_notes_do_not_deliver_twice(scratch: Path) -> None:
    """A kill takes the notes Apache's broker had not written; the commits are in the log.

    It has copied what it did not know to have ended.
    """
    settings = SETTINGS | {"transactionOpBatchInterval": 60_000}
    with (
        broker_on("apache", scratch, 0).start(**settings) as server,
        Producer(server.broker, GROUP) as producer,
    ):
        producer.create_topic(TOPIC, 1)
        halves = begin(producer, "t0")
        committed = Counter(key for key in halves if "commit" in key)
        wait_until(lambda: delivered(producer) == committed, "what was committed")
        wait_until(lambda: producer.max_offset(HALF_TOPIC, 0) > len(halves), "copies")
        assert producer.max_offset(NOTE_TOPIC, 0) == 0
        server.kill()
    with (
        broker_on("ariane", scratch, 1).start(**SETTINGS) as server,
        Producer(server.broker, GROUP) as producer,
    ):
        producer.heartbeat()
        expected = {key for key in halves if "commit" not in key}
        assert asked_twice(producer, expected).keys() == expected
        assert delivered(producer) == committed


def test_a_copy_made_by_apache_before_a_kill_stands_for_its_half(scratch: Path) -> None:
    """Apache saves progress every few seconds: a kill leaves half messages and copies of them."""
    settings = SETTINGS | {"flushConsumerOffsetInterval": 600_000}
    books = Books()
    with (
        broker_on("apache", scratch, 0).start(**settings) as server,
        Producer(server.broker, GROUP) as producer,
    ):
        producer.create_topic(TOPIC, 1)
        producer.heartbeat()
        books.begin(producer, "t0")
        asked_twice(producer, books.is_open)
        books.see_a_whole_round(producer, "apache", marker="t0-open-2")
        server.kill()
    with (
        broker_on("ariane", scratch, 1).start(**SETTINGS) as server,
        Producer(server.broker, GROUP) as producer,
    ):
        producer.heartbeat()
        checks = producer.checks(seconds=30, count=len(books.is_open))
        assert Counter(check.half.key for check in checks) == Counter(books.is_open)
        for key in sorted(books.is_open):  # by its first half, which progress has long passed
            assert producer.end(books.halves[key], COMMIT, answers_check=True).code == 0
        books.committed |= books.is_open
        books.is_open = set()
        books.begin(producer, "t1")
        books.see_a_whole_round(producer, "ariane", marker="t1-open-2")
        assert delivered(producer) == Counter(books.committed)
