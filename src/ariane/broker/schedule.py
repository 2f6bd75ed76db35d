"""Messages delayed by level: each waits in the schedule topic, in the queue of its level.

Theory of operation. A waiting message's queue entry holds the time it is due, and within one queue
they come due in order, so looking at the front of each queue tells what is due and when the next
one will be; the service sleeps until then. Nothing is kept per message. Deliveries are made by the
kernel in slices, so that requests get their turn, and what it hands back (no room, a queue seen for
the first time, a record that is gone) is delivered here, one by one.

What cannot be delivered for good is skipped and reported; what cannot be now is tried again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ariane.broker.delay_progress import OPEN, DelayProgress, Run
from ariane.broker.delay_time import Arrivals, DelayClock
from ariane.broker.persistence import Saver
from ariane.broker.placing import place
from ariane.clock import Timer, Timers
from ariane.disk import Disk
from ariane.errors import MessageTooLarge, ProtocolError, StoreError
from ariane.protocol.message import decode_records, properties_text_of
from ariane.protocol.properties import REAL_QUEUE_ID, REAL_TOPIC
from ariane.store.delays import delays_ms_of
from ariane.store.deliveries import CAUGHT_UP, COUNT_REACHED, Target, deliver
from ariane.store.messages import NewMessage
from ariane.topics import HALF_TOPIC, SCHEDULE_TOPIC, topic_fault

if TYPE_CHECKING:
    from ariane.broker.state import BrokerState

logger = logging.getLogger("ariane.broker")

IDLE_S_MAX: Final = 0.5  # between two looks; also less than the shortest delay, so none is missed
IDLE_S_MIN: Final = 0.05
RETRY_S: Final = 0.1  # after the store said no
SLICE_COUNT: Final = 256  # messages of one level before the others, and the loop, get their turn
SLICE_S: Final = 0.004
TARGETS_MAX: Final = 10_000


class Schedule:
    """Delivers waiting messages when they are due, from `start` to `stop`."""

    def __init__(self, state: BrokerState, saver: Saver) -> None:
        self.progress = DelayProgress(state.clock, saver, state.store)
        self._state = state
        self._delays_ms = delays_ms_of(state.store_config.delay_levels)
        self._idle_s = min(IDLE_S_MAX, max(IDLE_S_MIN, min(self._delays_ms) / 2000))
        self._targets: dict[bytes, Target] = {}
        self._touched: list[Target] = []  # by the kernel, and not counted yet
        self._time: DelayClock | None = None
        self._arrivals: dict[int, Arrivals] = {}  # by level, while the clock is corrected
        self._timer: Timer | None = None
        self._timers: Timers | None = None
        self._turn = 0  # which level was looked at last

    def load(self, disk: Disk) -> None:
        """Find out what is left to deliver; raises CorruptFile, DiskFull or OSError."""
        self.progress.load(disk)

    def start(self, timers: Timers) -> None:
        """Deliver from now on."""
        clock = self._state.clock
        self._timers = timers
        self._time = DelayClock(
            clock.wall_ms(),
            clock.monotonic_s(),
            newest_ms=self._state.store.log.last_store_ms,
            longest_ms=max(self._delays_ms),
        )
        self._note_arrivals(clock.wall_ms() + self._time.correction_ms)
        self._wake_after(0.0)

    def stop(self) -> None:
        """Deliver no more."""
        self._timers = None
        if self._timer is not None:
            self._timer.cancel()

    def save(self) -> None:
        """Write what has changed; called every ten seconds or so."""
        self.progress.file.save()

    def save_now(self) -> None:
        """Write everything for the last time."""
        if self._time is not None:
            self.progress.save_now()
        self.progress.close()

    def _wake_after(self, delay_s: float) -> None:
        if self._timers is not None:
            self._timer = self._timers.after(delay_s, self._run)

    def _run(self) -> None:
        """Deliver a slice of what is due, and sleep until there is more."""
        delay_s = RETRY_S
        try:
            delay_s = self._deliver_slice()
            self.progress.observe()
        except Exception:  # whatever is wrong with one message must not end all deliveries
            logger.exception("delivering delayed messages failed; it is tried again")
        self._wake_after(delay_s)

    def _deliver_slice(self) -> float:
        """Deliver for a few milliseconds; how long there is nothing to do then, in seconds."""
        assert self._time is not None
        clock = self._state.clock
        started_s = clock.monotonic_s()
        now_ms = self._time.tick(clock.wall_ms(), started_s)
        self._note_arrivals(now_ms)
        levels = list(self.progress.runs)
        next_s = self._idle_s if not self._arrivals else IDLE_S_MIN
        for _ in levels:
            self._turn = (self._turn + 1) % len(levels)
            level = levels[self._turn]
            for run in self.progress.runs[level]:
                next_s = min(next_s, self._deliver_run(level, run, now_ms))
            self.progress.drop_finished(level)
            if clock.monotonic_s() - started_s > SLICE_S:
                return 0.0
        return next_s

    def _deliver_run(self, level: int, run: Run, now_ms: int) -> float:
        """Deliver what is due of one run; in how many seconds there will be more."""
        state = self._state
        store = state.store
        queue = store.queue(SCHEDULE_TOPIC, level - 1)
        run.next = max(run.next, min(queue.min_offset, run.end))  # retention may have passed by
        if run.next >= min(queue.end, run.end):
            return self._idle_s
        stop, due_ms = self._due(level, run, now_ms)
        if store.refusal is not None:
            return RETRY_S
        next_offset, outcome, next_ms = deliver(
            store.log,
            store.index,
            queue,
            self._targets,
            self.progress.slots,
            run.slot,
            first=run.next,
            stop=stop,
            end=run.end,
            due_ms=due_ms,
            now_ms=state.clock.wall_ms(),
            count_max=SLICE_COUNT,
            touched=self._touched,
        )
        if next_offset != run.next:
            run.next = next_offset
            self._delivered()
        if outcome == CAUGHT_UP:
            return max(0.001, (next_ms - now_ms) / 1000) if next_ms >= 0 else self._idle_s
        if outcome == COUNT_REACHED:
            return 0.0
        return self._deliver_one(level, run)

    def _due(self, level: int, run: Run, now_ms: int) -> tuple[int, int]:
        """(queue offset, time): what is before and due by then is to be delivered."""
        arrivals = self._arrivals.get(level)
        if arrivals is None or run.end <= arrivals.first:
            return run.end, now_ms
        if run.next < arrivals.first:
            return arrivals.first, now_ms
        return arrivals.due_end(now_ms), OPEN

    def _note_arrivals(self, now_ms: int) -> None:
        """While the wall clock is behind, remember when messages came."""
        assert self._time is not None
        if not self._time.correction_ms:
            self._arrivals.clear()
            return
        for level in self.progress.runs:
            end = self._state.store.queue(SCHEDULE_TOPIC, level - 1).end
            if level not in self._arrivals:
                delay_ms = self._delays_ms[min(level, len(self._delays_ms)) - 1]
                self._arrivals[level] = Arrivals(end, delay_ms)
            self._arrivals[level].note(end, now_ms)

    def _delivered(self) -> None:
        """Count what the kernel has placed, and wake whoever waits for it."""
        state = self._state
        state.store.advance()
        for target in self._touched:
            topic = target.queue.topic.decode()
            state.stats.put_to(topic).add(*target.take())
            state.arrived(topic, target.queue.queue_id)
        self._touched.clear()

    def _deliver_one(self, level: int, run: Run) -> float:
        """Deliver the next message by itself; in how many seconds to go on."""
        where = f"level={level} queue_offset={run.next}"
        try:
            message = self._due_message(level, run.next)
        except (ProtocolError, ValueError) as fault:
            logger.error("delayed message cannot be delivered %s reason=%s", where, fault)
            message = None
        if message is not None:
            try:
                place(self._state, message)
            except MessageTooLarge as fault:
                logger.error("delayed message cannot be delivered %s reason=%s", where, fault)
            except StoreError as fault:
                logger.warning("delayed message not delivered yet %s reason=%s", where, fault)
                return RETRY_S
            self._aim_at(message)
        self.progress.advanced(run, run.next + 1)
        return 0.0

    def _due_message(self, level: int, queue_offset: int) -> NewMessage | None:
        """The waiting message as it is delivered; None when it is gone; ValueError if it is odd."""
        store = self._state.store
        entry = store.queue(SCHEDULE_TOPIC, level - 1).entry(queue_offset)
        record = None if entry is None else store.record_at(entry[0])
        if record is None:
            return None  # padding, or retention was faster than the delay
        (waiting,) = decode_records(record)
        topic = waiting.properties.get(REAL_TOPIC, "")
        if topic in (HALF_TOPIC, SCHEDULE_TOPIC):
            raise ValueError(f"it is meant for {topic}, where nothing is delivered to")
        if (fault := topic_fault(topic)) is not None:
            raise ValueError(fault)
        return NewMessage(
            topic=topic,
            queue_id=_queue_id(waiting.properties.get(REAL_QUEUE_ID, "")),
            body=waiting.stored_body,
            properties=properties_text_of(record),
            born_host=waiting.born_host,
            born_at_ms=waiting.born_at_ms,
            flag=waiting.flag,
            system_flag=waiting.system_flag,
            reconsume_times=waiting.reconsume_times,
        )

    def _aim_at(self, message: NewMessage) -> None:
        """Let the kernel deliver to this queue from now on."""
        if len(self._targets) >= TARGETS_MAX:
            self._targets.clear()
        key = f"{message.topic}\0{message.queue_id}".encode()
        self._targets[key] = Target(self._state.store.queue(message.topic, message.queue_id))


def _queue_id(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"it is meant for queue {text!r}")
    return int(text)
