"""kill -9 of a real broker amid transactions: each ends as its producer says, and once."""

import random
import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.harness.processes import Ariane
from tests.harness.transactions import COMMIT, ROLLBACK, Producer
from tests.harness.wire import Wire, WireRefused

TOPIC, GROUP = "KilledInTransactions", "killed-producers"
ROUNDS = 4
SETTINGS: dict[str, object] = {
    "mappedFileSizeCommitLog": 4 << 20,
    "mappedFileSizeConsumeQueue": 20 * 4000,
    "maxHashSlotNum": 5000,
    "maxIndexNum": 20_000,
    "transactionTimeOut": 300,
    "transactionCheckInterval": 500,
    "transactionCheckMax": 1000,
}


def decision_of(key: str) -> int:
    """What a producer says about a transaction whenever it says anything."""
    return ROLLBACK if key.endswith(("0", "5")) else COMMIT


class Shop(threading.Thread):
    """Begins transactions until the broker is gone; ends some, and answers what it is asked."""

    def __init__(self, address: tuple[str, int], prefix: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.begun: list[str] = []  # acknowledged
        self._address = address
        self.prefix = prefix
        self._dice = random.Random(seed)

    def run(self) -> None:
        try:
            with Producer(self._address, GROUP) as producer:
                producer.heartbeat()
                for number in range(1_000_000):
                    self._trade(producer, f"{self.prefix}-{number}")
        except OSError:
            pass  # the broker was killed

    def _trade(self, producer: Producer, key: str) -> None:
        try:
            half = producer.begin(TOPIC, 0, key.encode(), key=key)
        except WireRefused:  # the machine is busy; whether it was stored is not known
            return
        self.begun.append(key)
        for _ in range(self._dice.choice([0, 1, 1, 1, 2])):
            producer.end_one_way(half, decision_of(key))
        answer(producer)


def answer(producer: Producer) -> int:
    """Answer all questions that have been read; how many there were."""
    asked, producer.asked = producer.asked, []
    for check in asked:
        producer.end_one_way(check.half, decision_of(check.half.key), answers_check=True)
    return len(asked)


def answers_within(producer: Producer, *, seconds: float) -> bool:
    """Answer what is asked within some time; whether anything was."""
    producer.asked = producer.checks(seconds=seconds)
    return answer(producer) > 0


def delivered(address: tuple[str, int]) -> Counter[str]:
    with Wire(address) as wire:
        return Counter(record.body.decode() for record in wire.read_queue(TOPIC, 0))


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_each_transaction_ends_once(flush: str, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    settings = SETTINGS | {"flushDiskType": flush}
    begun: list[str] = []
    for number in range(ROUNDS):
        with Ariane(tmp_path).start(**settings) as server:
            if number == 0:
                with Wire(server.broker) as wire:
                    wire.create_topic(TOPIC, 1)
            shops = [
                Shop(server.broker, f"r{number}-{index}-k", dice.randrange(2**32))
                for index in range(2)
            ]
            for shop in shops:
                shop.start()
            shops[0].join(dice.uniform(0.3, 1.5))
            server.kill()
            for shop in shops:
                shop.join(30)
                begun += shop.begun
    assert len(begun) > 100
    with Ariane(tmp_path).start(**settings) as server:
        with Producer(server.broker, GROUP) as producer:
            producer.heartbeat()
            while answers_within(producer, seconds=2.0):
                pass  # until some rounds in a row have nothing to ask
        found = delivered(server.broker)
        wanted = {key for key in begun if decision_of(key) == COMMIT}
        assert [key for key, count in found.items() if count > 1] == []
        assert wanted - found.keys() == set()
        assert [key for key in found if decision_of(key) == ROLLBACK] == []
        server.stop()
    server.check_store(**settings)
