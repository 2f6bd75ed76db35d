"""One store directory, opened in turn by Apache's broker and ours: each serves what is there.

Whoever has the store serves every message by pull and by key, appends, and ends, by a clean stop or
by kill -9; the next one starts on what is left.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness.apache import broker_on
from tests.harness.processes import Ariane, wait_until
from tests.harness.wire import Wire

pytestmark = pytest.mark.interop

TOPIC = "Interchanged"
GROUP = "interchange-group"
QUEUES = 3
SMALL: dict[str, object] = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20 * 500,
    "maxHashSlotNum": 5000,
    "maxIndexNum": 20_000,
}


@dataclass(frozen=True)
class Kept:
    """One message that must be served from now on."""

    queue_id: int
    queue_offset: int
    body: bytes
    key: str


def append(wire: Wire, turn: int) -> list[Kept]:
    """A few segments' worth: single messages and batches, small and large bodies."""
    kept = []
    for number in range(600):
        queue_id = number % QUEUES
        keys = [f"t{turn}-{number}-{part}" for part in range(5 if number % 10 == 0 else 1)]
        size = (10, 200, 3000, 6000)[number % 4]
        bodies = [key.encode().ljust(size, b"x") for key in keys]
        if len(keys) == 1:
            place = wire.send(TOPIC, queue_id, bodies[0], key=keys[0])
        else:
            place = wire.send_batch(TOPIC, queue_id, bodies, keys)
        kept += [
            Kept(queue_id, place.queue_offset + part, body, key)
            for part, (body, key) in enumerate(zip(bodies, keys, strict=True))
        ]
    return kept


def check_served(wire: Wire, kept: list[Kept], *, by_key: bool) -> None:
    for queue_id in range(QUEUES):
        expected = [message for message in kept if message.queue_id == queue_id]
        wait_for_end(wire, queue_id, len(expected))
        records = wire.read_queue(TOPIC, queue_id)
        assert [record.body for record in records] == [message.body for message in expected]
        assert [record.queue_offset for record in records] == [m.queue_offset for m in expected]
    for message in kept if by_key else []:
        found = [record.body for record in wire.query(TOPIC, message.key)]
        assert found == [message.body], f"query of {message.key} found {len(found)} messages"


def wait_for_end(wire: Wire, queue_id: int, end: int) -> None:
    """Apache shows messages some time after it has acknowledged them."""
    what = f"{end} messages in queue {queue_id}"
    wait_until(lambda: wire.max_offset(TOPIC, queue_id) >= end, what)


@pytest.mark.parametrize(
    ("first", "ending", "sizes"),
    [
        ("ariane", "stop", SMALL),
        ("ariane", "kill", SMALL),
        ("apache", "stop", SMALL),
        ("apache", "kill", SMALL),
        ("ariane", "stop", {}),
        ("apache", "kill", {}),
    ],
    ids=[
        "ours-first-stop-small",
        "ours-first-kill-small",
        "apache-first-stop-small",
        "apache-first-kill-small",
        "ours-first-stop-default",
        "apache-first-kill-default",
    ],
)
def test_store_passes_between_brokers(
    first: str, ending: str, sizes: dict[str, object], scratch: Path
) -> None:
    second = "apache" if first == "ariane" else "ariane"
    kept: list[Kept] = []
    for turn, kind in enumerate([first, second, first]):
        with broker_on(kind, scratch, turn).start(**sizes) as server:
            with Wire(server.broker) as wire:
                if turn == 0:
                    wire.create_topic(TOPIC, QUEUES)
                    wire.create_group(GROUP)
                # After a kill Apache drops index files and does not fill them anew; ours must.
                check_served(wire, kept, by_key=kind == "ariane" or ending == "stop")
                if turn > 0 and ending == "stop":
                    assert wire.committed(GROUP, TOPIC, 0) == turn
                kept += append(wire, turn)
                check_served(wire, kept, by_key=False)
                wire.commit(GROUP, TOPIC, 0, turn + 1)
            if ending == "stop":
                server.stop()
            else:
                server.kill()
    with Ariane(scratch / "data").start(**sizes) as last:
        with Wire(last.broker) as wire:
            check_served(wire, kept, by_key=True)
        last.stop()
    last.check_store(**sizes)
