"""A store with timed messages, and the obvious model of what must become of them.

Each message goes to topic T with its number as body. The world sees every delivery with the time it
was made at, and knows which messages were sent, deleted, and lost to a power cut.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ariane.clock import ManualClock
from ariane.config import StoreConfig
from ariane.disk import CrashMode, SimulatedDisk
from ariane.store.store import Store
from ariane.store.timer_wheel import slot_of
from ariane.topics import TIMER_TOPIC
from tests.unit.store.shelf import HOST, config_with, message, read_all

SLOTS = 64
NEVER = 1 << 60
TIMED = config_with(
    segment_bytes=1 << 16,
    queue_file_bytes=20 * 50,
    index_slot_count=100,
    index_entry_count=2000,
    timer_log_file_bytes=1024,
    timer_delay_max_s=3600,
)


class TimerWorld:
    """One store through its lives."""

    def __init__(self, config: StoreConfig = TIMED, *, slots: int = SLOTS) -> None:
        self.config = config
        self.slots = slots
        self.clock = ManualClock()
        self.disk = SimulatedDisk(now_s=lambda: self.clock.wall_ms() / 1000)
        self.due: dict[int, int] = {}
        self.deleted: set[int] = set()
        self.delivered: dict[int, list[int]] = {}  # times of delivery, by message
        self.doubled: set[int] = set()  # may be delivered twice, by reason of a crash
        self.seen = -1  # the log offset of the newest delivery noted
        self.on_operation: Callable[[str, str], None] | None = None
        self.store = self.open()

    def open(self) -> Store:
        """Start on what the disk holds."""
        store = Store.open(
            self.config, self.disk, self.clock, store_host=HOST, timer_slots=self.slots
        )
        store.start()
        self.store = store
        return store

    def watch(self, on_operation: Callable[[str, str], None] | None) -> None:
        """Be told of everything that is done to the disk, and of turns of the wheel."""
        self.on_operation = self.disk.on_operation = on_operation

    @property
    def now_ms(self) -> int:
        """Wall time."""
        return self.clock.wall_ms()

    def send(self, delay_ms: int, *, size: int = 0, relative: bool = False) -> int:
        """Time a message; its number."""
        number = len(self.due)
        due_ms = self.now_ms + delay_ms
        asked = {"TIMER_DELAY_MS": delay_ms} if relative else {"TIMER_DELIVER_MS": due_ms}
        self.due[number] = due_ms
        self._append(number, due_ms, b"%d" % number + b"x" * size, f"u{number}", asked)
        return number

    def delete(self, number: int) -> None:
        """Ask for a message not to be delivered, by a message for the same slot."""
        slot_ms = slot_of(self.due[number], self.config.timer_precision_ms)
        if slot_ms <= self.now_ms or number in self.deleted or self.due[number] == NEVER:
            return
        asked = {"TIMER_DELIVER_MS": slot_ms + 1, "TIMER_DEL_UNIQKEY": f"u{number}"}
        self.deleted.add(number)
        self._append(number, slot_ms + 1, b"0", f"u{number}", asked)

    def _append(
        self, number: int, due_ms: int, body: bytes, key: str, asked: dict[str, object]
    ) -> None:
        marks = {
            "TIMER_OUT_MS": slot_of(due_ms, self.config.timer_precision_ms),
            "REAL_TOPIC": "T",
            "REAL_QID": number % 2,
        }
        properties = {name: str(value) for name, value in (asked | marks).items()}
        self.store.append(message(body, TIMER_TOPIC, 0, UNIQ_KEY=key, **properties))

    def turn(self) -> None:
        """Let the wheel turn until there is nothing to do now, then look at what it did."""
        while True:
            turn = self.store.timer.turn()
            assert turn.fault is None, turn.fault
            if self.on_operation is not None:
                self.on_operation("turn", "")
            if not turn.is_more:
                break
        self.look()

    def look(self) -> None:
        """Note new deliveries; none may be early, doubled without reason, or of a deleted one."""
        found = sorted(
            (record.log_offset, int(record.body.rstrip(b"x")))
            for queue_id in (0, 1)
            for record in read_all(self.store, "T", queue_id)
        )
        for log_offset, number in found:
            if log_offset <= self.seen:
                continue
            self.seen = log_offset
            times = self.delivered.setdefault(number, [])
            assert self.now_ms >= self.due[number], f"{number} came early"
            assert number not in self.deleted, f"{number} was deleted"
            assert not times or number in self.doubled, f"{number} came twice"
            times.append(self.now_ms)

    def check_nothing_due_is_missing(self) -> None:
        """Whatever is due by now has come."""
        missing = [
            number
            for number, due_ms in self.due.items()
            if due_ms <= self.now_ms and number not in self.deleted | self.delivered.keys()
        ]
        assert not missing, f"{missing} are due and have not come"

    def advance(self, milliseconds: int) -> None:
        """Let time pass and the store do what is due, four times a slot."""
        while milliseconds > 0:
            step = min(milliseconds, self.config.timer_precision_ms // 4)
            milliseconds -= step
            self.clock.advance(step / 1000)
            self.turn()
            self.store.tick()
        self.check_nothing_due_is_missing()

    def restart(self) -> None:
        """Stop cleanly and start again."""
        self.store.stop()
        self.look_at_restart()

    def crash(self, mode: CrashMode, random: Random | None = None) -> None:
        """Stop like a killed process or a machine without power, and start again."""
        self.look()  # what was delivered within a turn that was cut short
        due = {number for number, due_ms in self.due.items() if due_ms <= self.now_ms}
        if mode is CrashMode.KILL:
            # What may come again is what was due in the slot under way.
            self.doubled |= {number for number in due if self.due[number] > self.read_ms}
        else:  # what was delivered, or rolled, since the last checkpoint
            self.doubled |= due | self.rolled()
        self.disk = self.disk.crash_image(random or Random(1), mode)
        self.look_at_restart()

    def rolled(self) -> set[int]:
        """Messages that were stored anew on the way to their time."""
        return {
            int(record.body.rstrip(b"x"))
            for record in read_all(self.store, TIMER_TOPIC, 0)
            if "TIMER_ROLL_TIMES" in record.properties
        }

    @property
    def read_ms(self) -> int:
        """The slot under way."""
        clockwork = self.store.timer.clockwork
        return 0 if clockwork is None else clockwork.read_ms

    def look_at_restart(self) -> None:
        """Start again; what a power cut took was never sent, or never delivered."""
        self.disk.on_operation = self.on_operation
        self.open()
        kept = {
            int(record.body.rstrip(b"x"))
            for record in read_all(self.store, TIMER_TOPIC, 0)
            if "TIMER_DEL_UNIQKEY" not in record.properties
        }
        deletions = {
            int(record.properties["TIMER_DEL_UNIQKEY"][1:])
            for record in read_all(self.store, TIMER_TOPIC, 0)
            if "TIMER_DEL_UNIQKEY" in record.properties
        }
        came = {
            record.log_offset: int(record.body.rstrip(b"x"))
            for queue_id in (0, 1)
            for record in read_all(self.store, "T", queue_id)
        }
        self.seen = max(came, default=-1)
        self.deleted &= deletions
        for number in set(self.due) - kept:
            self.due[number] = NEVER  # its sending was lost; its number is not used again
        self.delivered = {n: times for n, times in self.delivered.items() if n in came.values()}
        for number in came.values():
            self.delivered.setdefault(number, [0])
