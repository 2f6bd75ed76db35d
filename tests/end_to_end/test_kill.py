"""kill -9 of a real broker under load, again and again: nothing acknowledged is lost."""

import random
import time
from pathlib import Path

import pytest

from tests.harness.load import Acknowledged, Producer, missing
from tests.harness.processes import Ariane
from tests.harness.wire import Wire

TOPIC = "KilledUnderLoad"
ROUNDS = 20
# Small files, so that kills fall on rolls of the log, the queues and the index as well.
SMALL = {
    "mappedFileSizeCommitLog": 4 << 20,
    "mappedFileSizeConsumeQueue": 20 * 4000,
    "maxHashSlotNum": 5000,
    "maxIndexNum": 20_000,
    "waitTimeMillsInSendQueue": 5000,  # a busy machine is no reason to refuse
}


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_nothing_acknowledged_is_lost(flush: str, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    promised: list[Acknowledged] = []
    settings: dict[str, object] = {**SMALL, "flushDiskType": flush}
    for number in range(ROUNDS if flush == "ASYNC_FLUSH" else ROUNDS // 4):
        with Ariane(tmp_path).start(**settings) as server:
            with Wire(server.broker) as wire:
                if number == 0:
                    wire.create_topic(TOPIC)
                assert missing(wire, TOPIC, promised[-5000:]) == []
                for message in dice.sample(promised, min(20, len(promised))):
                    bodies = [record.body for record in wire.query(TOPIC, message.key)]
                    assert bodies == [message.body], f"key {message.key} of round {number - 1}"
            producers = [
                Producer(server.broker, TOPIC, f"r{number}-p{index}") for index in range(3)
            ]
            for producer in producers:
                producer.start()
            time.sleep(dice.uniform(0.2, 0.8))
            server.kill()
            for producer in producers:
                producer.join(30)
                assert producer.refusals == []
                promised += producer.acknowledged
        assert len(promised) > 100 * number, "the load is too thin to prove anything"
    with Ariane(tmp_path).start(**settings) as server:
        with Wire(server.broker) as wire:
            assert missing(wire, TOPIC, promised) == []
        server.stop()
    server.check_store(**settings)
