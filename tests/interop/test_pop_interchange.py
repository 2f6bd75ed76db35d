"""One store with popped messages out, passed between Apache's broker and ours.

Whoever has the store when the time of a message is up lends it again; what was acknowledged at one
broker never comes at the other. So it is after a clean stop: after a kill Apache's broker starts
from the offsets it finds in the file, which are seconds old, whoever wrote them.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.harness.apache import Apache
from tests.harness.pops import Lent, Popper
from tests.harness.processes import Ariane, Server, wait_until

pytestmark = pytest.mark.interop

TOPIC, GROUP = "Popped", "poppers"
INVISIBLE_MS = 6_000
PATIENCE_S = 40  # Apache's broker gives back some seconds after the time is up
QUIET_S = 3.0
SETTINGS: dict[str, object] = {
    "mappedFileSizeCommitLog": 1 << 24,
    "mappedFileSizeConsumeQueue": 20 * 2000,
    "maxHashSlotNum": 5000,
    "maxIndexNum": 20_000,
    "timerPrecisionMs": 100,
}


@dataclass
class Books:
    """What was sent, acknowledged, and has come again though it should not."""

    sent: list[bytes] = field(default_factory=list)
    acked: set[bytes] = field(default_factory=set)
    came_back: list[bytes] = field(default_factory=list)

    def send(self, popper: Popper, prefix: str, count: int) -> None:
        """More messages."""
        for number in range(count):
            body = f"{prefix}-{number}".encode()
            popper.send(TOPIC, 0, body, key=body.decode())
            self.sent.append(body)

    def pop(self, popper: Popper, count: int) -> list[Lent]:
        """Messages lent just now."""
        lent = popper.pop(count, invisible_ms=INVISIBLE_MS, poll_ms=300)
        self.came_back += [each.body for each in lent if each.body in self.acked]
        return lent

    def ack(self, popper: Popper, lent: list[Lent], *, together: bool) -> None:
        """Acknowledge these, in one request or in many."""
        codes = [popper.ack_all(lent)] if together else [popper.ack(each) for each in lent]
        assert set(codes) == {0}
        self.acked |= {each.body for each in lent}

    def ack_until_done(self, popper: Popper, spared: set[bytes]) -> None:
        """Be lent everything that is left, and acknowledge it but for those to be spared."""
        wanted = set(self.sent) - self.acked
        seen: set[bytes] = set()

        def has_come() -> bool:
            lent = self.pop(popper, 32)
            seen.update(each.body for each in lent)
            kept = [each for each in lent if each.body not in spared]
            if kept:
                self.ack(popper, kept, together=False)
            return wanted <= seen

        wait_until(has_come, f"{len(wanted)} that are not acknowledged", seconds=PATIENCE_S)


def server_of(kind: str, directory: Path, turn: int) -> Server:
    if kind == "ariane":
        return Ariane(directory / "data")
    return Apache(directory / f"apache-{turn}", store=directory / "data" / "store")


def test_popped_messages_pass_between_brokers(scratch: Path) -> None:
    books = Books()
    for turn, kind in enumerate(["ariane", "apache", "ariane"]):  # so they pass either way
        with (
            server_of(kind, scratch, turn).start(**SETTINGS) as server,
            Popper(server.broker).use(TOPIC, GROUP) as popper,
        ):
            if turn == 0:
                popper.create_topic(TOPIC, 1)
                popper.create_group(GROUP)
            else:
                spared = set(books.sent[-4:]) if turn == 1 else set[bytes]()
                books.ack_until_done(popper, spared)
            if turn < 2:
                books.send(popper, f"t{turn}", 30)
                lent = books.pop(popper, 12) + books.pop(popper, 8)
                books.ack(popper, lent[2:7], together=True)
                books.ack(popper, lent[13:17], together=False)
                books.send(popper, f"more-{turn}", 5)
            else:
                end_s = time.monotonic() + INVISIBLE_MS / 1000 + QUIET_S
                while time.monotonic() < end_s:
                    assert books.pop(popper, 32) == []
            server.stop()
    assert books.came_back == []
    assert books.acked == set(books.sent)
