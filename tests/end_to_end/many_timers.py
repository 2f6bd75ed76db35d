"""Very many timed messages: held in little memory, there after kill -9, never early, hardly late.

`python tests/end_to_end/many_timers.py` takes five minutes for a million; a test has fewer.
"""

import argparse
import contextlib
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.harness.processes import ROOT, Ariane, anonymous_bytes, wait_until
from tests.harness.wire import SEND_V2, Wire, frame, properties_of, send_header

TOPIC, QUEUES = "ManyTimed", 4
MEMORY_MAX = 200 << 20
LATE_MS_MAX = 1000
SLOT_MS = 1000
CAUGHT_UP_MS = 2000  # after a start
IN_FLIGHT = 2000
LOOK_S = 0.05
SETTINGS: dict[str, object] = {
    "mappedFileSizeCommitLog": 256 << 20,
    "maxTransferCountOnMessageInMemory": 2000,
    "maxTransferBytesOnMessageInMemory": 1 << 20,
    "maxTransferCountOnMessageInDisk": 2000,
    "maxTransferBytesOnMessageInDisk": 1 << 20,
    "waitTimeMillsInSendQueue": 10_000,  # on a busy machine too
}


@dataclass
class Report:
    """What was seen."""

    count: int
    sent_per_s: float = 0
    starts_s: list[float] = field(default_factory=list)
    memory_max: int = 0
    early: int = 0
    late_ms: list[int] = field(default_factory=list)
    repeated: int = 0
    lost: int = 0
    held_up_ms: int = 0  # by other processes and the disk, in the worst second

    def __str__(self) -> str:
        late = self.late_ms
        return (
            f"{self.count:,} timed messages sent at {self.sent_per_s:,.0f}/s;"
            f" {self.memory_max >> 20} MB at most;"
            f" starts after kill -9 {', '.join(f'{took:.2f} s' for took in self.starts_s)};"
            f" {self.lost} lost, {self.early} early, {self.repeated} repeated;"
            f" late by {late[len(late) // 2]} ms (median), {late[len(late) * 999 // 1000]} ms"
            f" (99.9 %), {late[-1]} ms (at most); held up for {self.held_up_ms} ms of a second"
        )


class Hindrance:
    """Notes for how much of any second the servers wanted to run and could not."""

    def __init__(self) -> None:
        self.worst_ms = 0.0
        self._process_id = 0
        self._seen: deque[tuple[float, float]] = deque()  # when, and all waiting until then
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._look_on)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended.set()
        self._thread.join()

    def watch(self, server: Ariane) -> None:
        """Look at this server from now on."""
        self._process_id = server.broker_process.pid

    def _look_on(self) -> None:
        process_id, disk_ms, before_s = 0, 0.0, time.monotonic()
        while not self._has_ended.wait(LOOK_S):
            now_s = time.monotonic()
            if process_id != self._process_id:
                process_id, disk_ms = self._process_id, 0.0
                self._seen.clear()
            with contextlib.suppress(OSError, IndexError):  # it is being killed
                state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
                disk_ms += (now_s - before_s) * 1000 if state == "D" else 0.0
                queued_ns = int(Path(f"/proc/{process_id}/schedstat").read_text().split()[1])
                self._seen.append((now_s, queued_ns / 1e6 + disk_ms))
                while self._seen[0][0] < now_s - 1:
                    self._seen.popleft()
                self.worst_ms = max(self.worst_ms, self._seen[-1][1] - self._seen[0][1])
            before_s = now_s


def send_all(address: tuple[str, int], due_ms: list[int]) -> None:
    """Time every message, with many in flight; each body is its number and when it is due."""
    room = threading.Semaphore(IN_FLIGHT)
    with Wire(address, timeout_s=60) as wire:
        refused: list[str] = []

        def read_answers() -> None:
            for _ in due_ms:
                answer = wire.read()
                if answer.code:
                    refused.append(f"{answer.code}: {answer.remark}")
                room.release()

        reader = threading.Thread(target=read_answers, daemon=True)
        reader.start()
        for number, due in enumerate(due_ms):
            room.acquire()
            header = send_header(TOPIC, number % QUEUES, key="", tag="")
            header["i"] = properties_of(UNIQ_KEY=f"{number:032X}", TIMER_DELIVER_MS=str(due))
            wire.socket.sendall(frame(SEND_V2, header, b"%d %d" % (number, due), opaque=number))
        reader.join(60)
        assert not reader.is_alive(), "answers are missing"
        assert not refused, f"{len(refused)} refused, like {refused[0]}"


def delivered(wire: Wire) -> list[tuple[int, int, int]]:
    """Number, due time and time of storing of each message that came."""
    found = []
    for queue_id in range(QUEUES):
        end, at = wire.max_offset(TOPIC, queue_id), 0
        while at < end:
            records = wire.pull(TOPIC, queue_id, at, 2000)
            assert records, f"nothing at {at} of {end}"
            at += len(records)
            for record in records:
                number, due = record.body.split()
                found.append((int(number), int(due), record.stored_at_ms))
    return found


def run(directory: Path, count: int, per_s: int, fill_s: float) -> Report:
    """Send `count` messages due from `fill_s` on, kill twice, and look at what came."""
    with Hindrance() as hindrance:
        report = _run(directory, count, per_s, fill_s, hindrance)
    report.held_up_ms = round(hindrance.worst_ms)
    return report


def _run(directory: Path, count: int, per_s: int, fill_s: float, hindrance: Hindrance) -> Report:
    report = Report(count)
    kills_ms: list[tuple[int, int]] = []  # from, until ready again

    def restart(server: Ariane) -> Ariane:
        report.memory_max = max(report.memory_max, anonymous_bytes(server.broker_process.pid))
        killed_ms, began = time.time_ns() // 1_000_000, time.monotonic()
        server.kill()
        started = Ariane(directory).start(**SETTINGS)
        hindrance.watch(started)
        report.starts_s.append(time.monotonic() - began)
        kills_ms.append((killed_ms, time.time_ns() // 1_000_000))
        return started

    server = Ariane(directory).start(**SETTINGS)
    hindrance.watch(server)
    try:
        with Wire(server.broker) as wire:
            wire.create_topic(TOPIC, QUEUES)
        began = time.monotonic()
        first_ms = int((time.time() + fill_s) * 1000)
        due_ms = [first_ms + number * 1000 // per_s for number in range(count)]
        send_all(server.broker, due_ms)
        report.sent_per_s = count / (time.monotonic() - began)
        assert time.time() * 1000 < first_ms, f"sending took longer than {fill_s:g} s"
        server = restart(server)
        middle_s = (due_ms[0] + due_ms[-1]) / 2000
        wait_until(lambda: time.time() > middle_s, "half of them", seconds=fill_s + count / per_s)
        server = restart(server)
        with Wire(server.broker, timeout_s=60) as wire:

            def have_come() -> bool:
                time.sleep(0.1)
                report.memory_max = max(
                    report.memory_max, anonymous_bytes(server.broker_process.pid)
                )
                return sum(wire.max_offset(TOPIC, queue) for queue in range(QUEUES)) >= count

            wait_until(have_come, "all of them", seconds=30 + count / per_s)
            wait_until(lambda: time.time() * 1000 > due_ms[-1] + 3000, "the end", seconds=60)
            came = delivered(wire)
    finally:
        server.kill()
    report.early = sum(stored < due for _, due, stored in came)
    times = Counter(number for number, _, _ in came)
    report.lost = count - len(times)
    report.repeated = len(came) - len(times)
    report.late_ms = sorted(
        stored - due
        for _, due, stored in came
        # What fell due while the broker was down, or caught up, is late with good reason.
        if not any(start - SLOT_MS <= due <= end + CAUGHT_UP_MS for start, end in kills_ms)
    ) or [0]
    return report


def faults_in(report: Report, per_s: int) -> list[str]:
    """What must not be."""
    found = []
    if report.lost or report.early:
        found.append("some are lost or early")
    if report.repeated > per_s * 2 * SLOT_MS // 1000:  # the slot under way at each kill
        found.append("too many came again")
    if report.memory_max > MEMORY_MAX:
        found.append(f"more than {MEMORY_MAX >> 20} MB")
    # What could not run for a while was late already, and runs behind for as long again.
    late_ms_max = LATE_MS_MAX + 2 * report.held_up_ms
    if report.late_ms[len(report.late_ms) * 999 // 1000] > late_ms_max:
        found.append("some are late")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Timed messages by the million, and kills.")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--per-second", type=int, default=10_000, help="how many are due a second")
    parser.add_argument("--fill", type=float, default=150, help="seconds until the first is due")
    options = parser.parse_args()
    scratch = ROOT / ".cache"
    scratch.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="timers-", dir=scratch) as directory:
        report = run(Path(directory), options.count, options.per_second, options.fill)
    print(report)
    faults = faults_in(report, options.per_second)
    print("; ".join(faults) or "all is well")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
