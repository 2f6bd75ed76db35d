"""How much passes through the broker: counts that only grow, and rates derived by sampling them.

Nothing here runs once per message. Handlers add to a `Tally` once per request; the hot lane keeps
counts of its own, which `refresh` brings into tallies just before each sample. However many tallies
there are, a turn of the loop samples a slice of them. Rates over the last
minute, hour and day come from samples 10 seconds, 10 minutes and an hour apart, as RocketMQ's do;
totals are sampled each second for the 10, 60 and 600 second rates that `clusterList` shows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from datetime import date
from typing import Final, NamedTuple

from ariane.clock import Clock, Timer, Timers

TOTALS_KEPT: Final = 601  # seconds
RATE_WINDOWS_S: Final = (10, 60, 600)
PUT_TOTAL: Final = "<put>"  # keys of the totals among the rates; no topic has such a name
GOT_TOTAL: Final = "<got>"
SLICE: Final = 2000  # tallies sampled in one turn of the loop, some 500 ns each
BACK: Final = "<back>"  # in front of the keys of what was sent back


class Tally:
    """Messages and bytes since the broker started."""

    __slots__ = ("bytes", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0

    def add(self, messages: int, byte_count: int) -> None:
        """Count what one request moved."""
        self.messages += messages
        self.bytes += byte_count


class Rate(NamedTuple):
    """What a tally gained within a window."""

    messages: int
    bytes: int
    seconds: float

    @property
    def messages_per_s(self) -> float:
        """Messages a second over the window."""
        return self.messages / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_s(self) -> float:
        """Bytes a second over the window."""
        return self.bytes / self.seconds if self.seconds else 0.0


class Window:
    """Samples of many tallies at equal intervals, oldest first; all taken at the same moments."""

    def __init__(self, sample_count: int) -> None:
        self._sample_count = sample_count
        self._taken_s: deque[float] = deque(maxlen=sample_count)
        self._samples: dict[str, deque[tuple[int, int]]] = {}

    def begin(self, now_s: float, tallies: dict[str, Tally]) -> None:
        """Begin to note where every tally stands; tallies that are gone are forgotten."""
        self._taken_s.append(now_s)
        for key in self._samples.keys() - tallies.keys():
            del self._samples[key]

    def note(self, tallies: Iterable[tuple[str, Tally]]) -> None:
        """Note where some of the tallies stand."""
        for key, tally in tallies:
            samples = self._samples.get(key)
            if samples is None:  # born since the last sample: all of it is gain
                samples = self._samples[key] = deque([(0, 0)], maxlen=self._sample_count)
            last = samples[-1]
            now = (tally.messages, tally.bytes)
            samples.append(last if now == last else now)  # an idle tally costs no memory

    def rate(self, key: str) -> Rate:
        """What the tally gained over the samples kept."""
        samples = self._samples.get(key)
        if samples is None or len(self._taken_s) < 2:
            return Rate(0, 0, 0.0)
        first, last = samples[0], samples[-1]
        span = min(len(samples), len(self._taken_s))
        seconds = self._taken_s[-1] - self._taken_s[-span]
        return Rate(last[0] - first[0], last[1] - first[1], seconds)


class Totals(NamedTuple):
    """The broker's totals at one moment."""

    taken_s: float
    put: int
    got: int


class DayMarks(NamedTuple):
    """Totals as they stood when yesterday and today began."""

    yesterday: int = 0
    today: int = 0


class Stats:
    """Every count of the broker: by topic on the way in, by topic and group on the way out."""

    def __init__(self, clock: Clock) -> None:
        self.put: dict[str, Tally] = {}  # topic -> what was sent to it
        self.got: dict[str, Tally] = {}  # "topic@group" -> what the group was given
        self.back: dict[str, Tally] = {}  # "<back>topic@group" -> what the group sent back
        self.refresh: list[Callable[[], None]] = []  # each brings in counts kept elsewhere
        self.started_ms = clock.wall_ms()
        self.put_marks = self.got_marks = DayMarks()
        self._clock = clock
        self._day = self._today()
        self._put_of_deleted, self._got_of_deleted = Tally(), Tally()
        self._windows = (Window(7), Window(7), Window(25))
        for window in self._windows:
            self._begin(window)
        self._totals = deque([self._totals_now()], maxlen=TOTALS_KEPT)

    def start(self, timers: Timers) -> list[Timer]:
        """Take samples from now on, until the timers are cancelled."""
        minute, hour, day = self._windows
        return [
            timers.every(1.0, self._sample_totals),
            timers.every(10.0, lambda: self._sample(minute, timers)),
            timers.every(600.0, lambda: self._sample(hour, timers)),
            timers.every(3600.0, lambda: self._sample(day, timers)),
        ]

    def put_to(self, topic: str) -> Tally:
        """The tally of what is sent to a topic."""
        tally = self.put.get(topic)
        if tally is None:
            tally = self.put[topic] = Tally()
        return tally

    def got_by(self, topic: str, group: str) -> Tally:
        """The tally of what a group is given of a topic."""
        key = f"{topic}@{group}"
        tally = self.got.get(key)
        if tally is None:
            tally = self.got[key] = Tally()
        return tally

    def groups_of(self, topic: str) -> list[str]:
        """The groups that were given something of a topic since the broker started."""
        self._bring_in()
        parts = [(key.partition("@"), tally) for key, tally in self.got.items()]
        return [group for (name, _, group), tally in parts if name == topic and tally.messages]

    def back_by(self, topic: str, group: str) -> Tally:
        """The tally of what a group sends back of a topic."""
        return self.back.setdefault(f"{BACK}{topic}@{group}", Tally())

    def forget_topic(self, topic: str) -> None:
        """Drop the counts of a topic that was deleted; totals keep what passed through it."""
        for key in [key for key in self.put if key == topic]:
            _move(self.put.pop(key), self._put_of_deleted)
        for key in [key for key in self.got if key.partition("@")[0] == topic]:
            _move(self.got.pop(key), self._got_of_deleted)
        for key in [key for key in self.back if key.partition("@")[0] == BACK + topic]:
            del self.back[key]

    def rates(self, key: str) -> tuple[Rate, Rate, Rate]:
        """What a topic, or "topic@group", gained in the last minute, hour and day."""
        minute, hour, day = self._windows
        return minute.rate(key), hour.rate(key), day.rate(key)

    def put_total(self) -> Tally:
        """Everything taken since the broker started."""
        self._bring_in()
        return _sum(self.put, self._put_of_deleted)

    def got_total(self) -> Tally:
        """Everything given since the broker started."""
        self._bring_in()
        return _sum(self.got, self._got_of_deleted)

    def put_per_s(self) -> list[float]:
        """Messages taken a second over the last 10, 60 and 600 seconds."""
        return [_per_s(*self._span(seconds), "put") for seconds in RATE_WINDOWS_S]

    def got_per_s(self) -> list[float]:
        """Messages given a second over the last 10, 60 and 600 seconds."""
        return [_per_s(*self._span(seconds), "got") for seconds in RATE_WINDOWS_S]

    def _span(self, seconds: int) -> tuple[Totals, Totals]:
        first = max(0, len(self._totals) - 1 - seconds)
        return self._totals[first], self._totals[-1]

    def _sample(self, window: Window, timers: Timers) -> None:
        """Sample every tally, a slice in this turn of the loop and the others in the next ones."""
        tallies = self._begin(window)

        def go_on(first: int) -> None:
            window.note(tallies[first : first + SLICE])
            if first + SLICE < len(tallies):
                timers.after(0.0, lambda: go_on(first + SLICE))

        go_on(0)

    def _begin(self, window: Window) -> list[tuple[str, Tally]]:
        """Begin a sample; what it is to consist of."""
        self._bring_in()
        totals = {
            PUT_TOTAL: _sum(self.put, self._put_of_deleted),
            GOT_TOTAL: _sum(self.got, self._got_of_deleted),
        }
        tallies = self.put | self.got | self.back | totals
        window.begin(self._clock.monotonic_s(), tallies)
        return list(tallies.items())

    def _sample_totals(self) -> None:
        totals = self._totals_now()
        self._totals.append(totals)
        if (today := self._today()) != self._day:
            self._day = today
            self.put_marks = DayMarks(self.put_marks.today, totals.put)
            self.got_marks = DayMarks(self.got_marks.today, totals.got)

    def _totals_now(self) -> Totals:
        self._bring_in()
        put = _messages(self.put, self._put_of_deleted)
        return Totals(self._clock.monotonic_s(), put, _messages(self.got, self._got_of_deleted))

    def _bring_in(self) -> None:
        for refresh in self.refresh:
            refresh()

    def _today(self) -> date:
        return date.fromtimestamp(self._clock.wall_ms() / 1000)


def _move(tally: Tally, to: Tally) -> None:
    to.add(tally.messages, tally.bytes)


def _sum(tallies: dict[str, Tally], rest: Tally) -> Tally:
    total = Tally()
    _move(rest, total)
    for tally in tallies.values():
        _move(tally, total)
    return total


def _messages(tallies: dict[str, Tally], rest: Tally) -> int:
    return rest.messages + sum([tally.messages for tally in tallies.values()])


def _per_s(first: Totals, last: Totals, name: str) -> float:
    seconds = last.taken_s - first.taken_s
    gained: int = getattr(last, name) - getattr(first, name)
    return gained / seconds if seconds else 0.0
