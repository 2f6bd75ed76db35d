"""kill -9 of a real broker while consumers pop: what is acknowledged is done with, and no more."""

import random
import time
from pathlib import Path

import pytest

from tests.harness.pops import Consumer, Ledger, Popper
from tests.harness.processes import Ariane, wait_until
from tests.harness.wire import Wire

TOPIC, GROUP = "PoppedUnderKills", "poppers"
QUEUES, MESSAGES, CONSUMERS, ROUNDS = 4, 6_000, 4, 5
INVISIBLE_MS = 2_000
SMALL: dict[str, object] = {
    "mappedFileSizeCommitLog": 4 << 20,
    "mappedFileSizeConsumeQueue": 20 * 4000,
    "maxHashSlotNum": 5000,
    "maxIndexNum": 20_000,
    "flushConsumerOffsetInterval": 200,  # so that kills fall before, within and after saves
}


def fill(wire: Wire, first: int, count: int) -> list[bytes]:
    bodies = [b"%d" % number for number in range(first, first + count)]
    for start in range(0, count, 50):
        part = bodies[start : start + 50]
        wire.send_batch(TOPIC, start // 50 % QUEUES, part, [body.decode() for body in part])
    return bodies


def are_settled(ledger: Ledger, sent: list[bytes]) -> bool:
    """Whether all came, and nothing is out that must come back."""
    owed = dict(ledger.owed)
    return owed.keys() >= set(sent) and not any(owed.values())


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_acknowledged_is_done_with_and_the_rest_comes_back(flush: str, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    settings: dict[str, object] = {**SMALL, "flushDiskType": flush}
    sent: list[bytes] = []
    ledger = Ledger()

    def begin(server: Ariane) -> list[Consumer]:
        started = [
            Consumer(
                Popper(server.broker).use(TOPIC, GROUP),
                ledger,
                random.Random(dice.random()),
                INVISIBLE_MS,
            )
            for _ in range(CONSUMERS)
        ]
        for consumer in started:
            consumer.start()
        return started

    for number in range(ROUNDS):
        with Ariane(tmp_path).start(**settings) as server:
            with Wire(server.broker) as wire:
                if number == 0:
                    wire.create_topic(TOPIC, QUEUES)
                sent += fill(wire, len(sent), MESSAGES // ROUNDS)
            running = begin(server)
            time.sleep(dice.uniform(0.1, 1.2))
            server.kill()
            for consumer in running:
                consumer.join(30)
                assert consumer.faults == []
    with Ariane(tmp_path).start(**settings) as server:
        running = begin(server)
        wait_until(lambda: are_settled(ledger, sent), "every message to be settled", seconds=60)
        for consumer in running:
            consumer.stopping.set()
            consumer.join(30)
            assert consumer.faults == []
        with Popper(server.broker).use(TOPIC, GROUP) as popper:
            left = popper.pop(poll_ms=int(INVISIBLE_MS * 1.5))
            ledger.lent(left)  # of doubtful ones, or too late, at most
            assert [each.body for each in left if each.body in ledger.acked] == []
        server.stop()
    server.check_store(**settings)
    again = ledger.seen_again()
    assert again == [], f"{len(again)} acknowledged messages came back, like {again[:3]}"
    print(f"{len(sent)} messages, {len(ledger.deliveries)} deliveries, {ROUNDS} kills")
