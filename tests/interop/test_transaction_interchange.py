"""One store directory with open transactions, passed between Apache's broker and ours.

Whoever has the store asks about what is open, and about nothing that has ended; what is committed
is delivered once, whichever broker the half message was sent to and whichever copied it.
"""

import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.harness.apache import Apache
from tests.harness.processes import Ariane, Server, wait_until
from tests.harness.transactions import COMMIT, ROLLBACK, Half, Producer

pytestmark = pytest.mark.interop

TOPIC, GROUP = "Transfers", "transfer-producers"
HALF_TOPIC, NOTE_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
SETTINGS: dict[str, object] = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20 * 500,
    "maxHashSlotNum": 5000,
    "maxIndexNum": 20_000,
    "transactionTimeOut": 1_000,
    "transactionCheckInterval": 2_000,
    "transactionCheckMax": 100,
    "transactionOpBatchInterval": 100,
}


def server_of(kind: str, directory: Path, turn: int) -> Server:
    if kind == "ariane":
        return Ariane(directory / "data")
    return Apache(directory / f"apache-{turn}", store=directory / "data" / "store")


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


def asked_twice(producer: Producer, expected: set[str]) -> dict[str, Half]:
    """The newest half messages once two rounds have asked about all that is expected.

    So whatever is not to be asked about would have been by now; and the second round is just over,
    so that what is ended now is noted before the next: Apache's broker asks again otherwise.
    """
    times: Counter[str] = Counter()
    newest: dict[str, Half] = {}
    deadline = time.monotonic() + 30
    while not expected <= {key for key in times if times[key] >= 2}:
        assert time.monotonic() < deadline, f"asked {times}, expected {expected}"
        for check in producer.checks(seconds=1):
            assert (check.record.topic, check.record.queue_id) == (TOPIC, 0)
            assert check.record.body.decode() == check.half.key
            times[check.half.key] += 1
            newest[check.half.key] = check.half
    assert newest.keys() == expected
    return newest


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

    def answer(self, producer: Producer, asked: dict[str, Half], *, by_first: bool) -> None:
        """Commit most of what is asked about, some by the half message first sent."""
        for number, key in enumerate(sorted(asked)):
            if number % 3:
                half = self.halves[key] if by_first and number % 2 else asked[key]
                assert producer.end(half, COMMIT, answers_check=True).code == 0
                self.committed.add(key)
        self.is_open -= self.committed

    def begin(self, producer: Producer, prefix: str) -> None:
        """Begin more transactions, and see their ends noted and delivered."""
        begun = begin(producer, prefix)
        self.halves |= begun
        self.is_open |= {key for key in begun if "open" in key}
        self.committed |= {key for key in begun if "commit" in key}
        ended = {half.queue_offset for key, half in begun.items() if "open" not in key}
        wait_until(lambda: ended <= noted(producer), "the notes")
        wait_until(lambda: delivered(producer) == Counter(self.committed), "the deliveries")


@pytest.mark.parametrize(
    ("first", "ending"), [("ariane", "stop"), ("ariane", "kill"), ("apache", "kill")]
)
def test_open_transactions_pass_between_brokers(first: str, ending: str, scratch: Path) -> None:
    second = "apache" if first == "ariane" else "ariane"
    books = Books()
    for turn, kind in enumerate([first, second, first]):
        with (
            server_of(kind, scratch, turn).start(**SETTINGS) as server,
            Producer(server.broker, GROUP) as producer,
        ):
            if turn == 0:
                producer.create_topic(TOPIC, 1)
            producer.heartbeat()
            asked = asked_twice(producer, books.is_open)
            # Apache's broker does not know a first half again once there is a copy.
            books.answer(producer, asked, by_first=kind == "ariane")
            books.begin(producer, f"t{turn}")
            # By the next round some are copied, and some have asked for more time than that.
            copied = {check.half.key for check in producer.checks(seconds=4, count=4)}
            assert copied <= books.is_open
            if ending == "stop":
                server.stop()
            else:
                server.kill()


def test_apache_s_lost_notes_do_not_deliver_twice(scratch: Path) -> None:
    """A kill takes the notes Apache's broker had not written; the commits are in the log."""
    settings = SETTINGS | {"transactionOpBatchInterval": 60_000}
    with (
        server_of("apache", scratch, 0).start(**settings) as server,
        Producer(server.broker, GROUP) as producer,
    ):
        producer.create_topic(TOPIC, 1)
        halves = begin(producer, "t0")
        committed = Counter(key for key in halves if "commit" in key)
        wait_until(lambda: delivered(producer) == committed, "what was committed")
        assert producer.max_offset(NOTE_TOPIC, 0) == 0
        server.kill()
    with (
        server_of("ariane", scratch, 1).start(**SETTINGS) as server,
        Producer(server.broker, GROUP) as producer,
    ):
        producer.heartbeat()
        asked_twice(producer, {key for key in halves if "commit" not in key})
        assert delivered(producer) == committed


def test_a_copy_made_by_apache_before_a_kill_stands_for_its_half(scratch: Path) -> None:
    """Apache saves progress every few seconds: a kill leaves half messages and copies of them."""
    settings = SETTINGS | {"flushConsumerOffsetInterval": 600_000}
    with (
        server_of("apache", scratch, 0).start(**settings) as server,
        Producer(server.broker, GROUP) as producer,
    ):
        producer.create_topic(TOPIC, 1)
        producer.heartbeat()
        halves = begin(producer, "t0")
        open_keys = {key for key in halves if "open" in key}
        asked_twice(producer, open_keys)
        server.kill()
    with (
        server_of("ariane", scratch, 1).start(**SETTINGS) as server,
        Producer(server.broker, GROUP) as producer,
    ):
        producer.heartbeat()
        checks = producer.checks(seconds=10, count=len(open_keys))
        assert Counter(check.half.key for check in checks) == Counter(open_keys)
        for key in sorted(open_keys):  # by its first half, which progress has long passed
            assert producer.end(halves[key], COMMIT, answers_check=True).code == 0
        assert producer.checks(seconds=5) == []
        assert delivered(producer) == Counter(
            key for key in halves if key in open_keys or "commit" in key
        )
