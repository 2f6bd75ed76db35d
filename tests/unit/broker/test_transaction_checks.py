"""Rounds of checks as transcripts: half messages, decisions and time in, what is done out.

`half A`, `half B immune=60` send; `large A` makes it more than
may be stored by now; `commit A`, `rollback A` decide, naming a copy by its number if
not the newest (`commit A@0`); `wait 30` lets seconds pass; `round` checks; `restart` rebuilds the
ledger from what a log would hold, `kill` does so without the notes not yet written and from the
progress last saved, `save` saves it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from ariane.broker import transaction_checks
from ariane.broker.transaction_checks import (
    Fate,
    Half,
    Ledger,
    Rules,
    Verdict,
    check_round,
    verdict_on,
)
from ariane.errors import MessageTooLarge

RULES = Rules(timeout_ms=6_000, check_max=3, age_max_ms=3_600_000)


@dataclass(frozen=True)
class Record:
    """One half message as it lies in the queue."""

    name: str
    first: int
    began_ms: int
    check_times: int = 0
    immunity_ms: int | None = None


@dataclass
class World:
    """A half queue, an operation queue and a clock, all in memory; what happens is told."""

    rules: Rules = RULES
    now_ms: int = 0
    halves: list[Record | None] = field(default_factory=list)
    notes: list[list[int]] = field(default_factory=list)
    unnoted: list[int] = field(default_factory=list)
    saved: tuple[int, int] = (0, 0)
    ledger: Ledger = field(default_factory=Ledger)
    told: list[str] = field(default_factory=list)
    fails: bool = False
    too_large: set[str] = field(default_factory=set)

    # What a round asks of the world.

    def read(self, queue_offset: int) -> Half | None:
        half = self.halves[queue_offset]
        return half and Half(half.check_times, half.began_ms, half.immunity_ms)

    def copy(self, queue_offset: int) -> int:
        return self._place(queue_offset, "copied", 0)

    def check(self, queue_offset: int) -> int:
        return self._place(queue_offset, "asked", 1)

    def discard(self, queue_offset: int) -> None:
        half = self._half(queue_offset)
        self.unnoted.append(queue_offset)
        self.told.append(f"{half.name} discarded")

    def _place(self, queue_offset: int, verb: str, checks: int) -> int:
        half = self._half(queue_offset)
        self.halves.append(replace(half, check_times=half.check_times + checks))
        self.told.append(f"{half.name} {verb} at {len(self.halves) - 1}")
        return len(self.halves) - 1

    def _half(self, queue_offset: int) -> Record:
        if self.fails:
            raise OSError("no room")
        half = self.halves[queue_offset]
        assert half is not None
        if half.name in self.too_large:
            raise MessageTooLarge(f"{half.name} is larger than is allowed")
        return half

    def look_past(self, queue_offset: int, error: Exception) -> None:
        self.told.append(f"past {queue_offset}: {error}")

    # What the transcript says.

    def run(self, line: str) -> None:
        word, *rest = line.split()
        getattr(self, f"do_{word}")(*rest)

    def do_half(self, name: str, immune: str = "") -> None:
        immunity_ms = int(immune.removeprefix("immune=")) * 1000 if immune else None
        at = len(self.halves)
        self.halves.append(Record(name, at, self.now_ms, immunity_ms=immunity_ms))

    def do_commit(self, name: str) -> None:
        self._end(name, Fate.COMMITTED)

    def do_rollback(self, name: str) -> None:
        self._end(name, Fate.ROLLED_BACK)

    def _end(self, name: str, fate: Fate) -> None:
        name, _, which = name.partition("@")
        places = [at for at, half in enumerate(self.halves) if half and half.name == name]
        at = places[int(which or -1)]
        half = self.halves[at]
        assert half is not None
        found = self.ledger.open_offset(at, half.first)
        if found is None:
            self.told.append(f"{name} had ended")
            return
        self.ledger.end(found, fate)
        self.unnoted.append(found)
        self.told.append(f"{name} {fate.name.lower()}")

    def do_wait(self, seconds: str) -> None:
        self.now_ms += int(seconds) * 1000

    def do_round(self) -> None:
        steps = check_round(self.ledger, self, self.rules, now_ms=self.now_ms, end=len(self.halves))
        try:
            for _ in steps:
                pass
        except OSError:
            self.told.append("round failed")
        self.told.append(f"progress {self.ledger.progress}")

    def do_note(self) -> None:
        if self.unnoted:
            self.ledger.noted(len(self.notes), self.unnoted)
            self.notes.append(self.unnoted)
            self.unnoted = []
        self.told.append(f"operations from {self.ledger.operation_progress}")

    def do_save(self) -> None:
        self.saved = (self.ledger.progress, self.ledger.operation_progress)

    def do_restart(self) -> None:
        self.do_note()
        self.do_save()
        self.do_kill()

    def do_kill(self) -> None:
        progress, operation_progress = self.saved
        self.unnoted = []
        self.ledger = Ledger(progress=progress, operation_progress=operation_progress)
        for at in range(progress, len(self.halves)):
            half = self.halves[at]
            if half is not None and half.first != at:
                self.ledger.found(at, half.first)
        for at in range(operation_progress, len(self.notes)):
            for half_offset in self.notes[at]:
                if (found := self.ledger.open_offset(half_offset)) is not None:
                    self.ledger.end(found, Fate.ENDED)
            self.ledger.noted(at, self.notes[at])
        self.ledger.advance(len(self.halves))
        self.told.append(f"back at {self.ledger.progress}")

    def do_lose(self, at: str) -> None:
        self.halves[int(at)] = None

    def do_large(self, name: str) -> None:
        self.too_large.add(name)

    def do_fail(self) -> None:
        self.fails = True

    def do_mend(self) -> None:
        self.fails = False


TRANSCRIPTS = {
    "young halves are left alone, and end the round": """
        half A; wait 6; half B; round
        > progress 0
        wait 1; round
        > A asked at 2; progress 1
    """,
    "each round asks again, and then gives up": """
        half A; wait 7; round
        > A asked at 1; progress 1
        wait 30; round
        > A asked at 2; progress 2
        wait 30; round
        > A asked at 3; progress 3
        wait 30; round; round
        > A discarded; progress 4; progress 4
        commit A
        > A had ended
    """,
    "what ended is passed without a question": """
        half A; half B; half C; commit A; rollback C
        > A committed; C rolled_back
        wait 7; round
        > B asked at 3; progress 3
        commit B; commit B; commit A; rollback A
        > B committed; B had ended; A had ended; A had ended
        round
        > progress 4
    """,
    "a late decision about the first half ends its copy": """
        half A; wait 7; round; commit A@0; commit A; commit A@0; wait 30; round
        > A asked at 1; progress 1; A committed; A had ended; A had ended; progress 2
    """,
    "a decision about an older copy ends the newest": """
        half A; wait 7; round; wait 30; round; commit A@1; wait 30; round
        > A asked at 1; progress 1; A asked at 2; progress 2; A committed; progress 3
    """,
    "immune halves wait where they are while nothing behind them is due": """
        half A immune=60; wait 30; half B; round
        > progress 0
        wait 29; round
        > A copied at 2; B asked at 3; progress 2
        wait 2; round
        > A asked at 4; B asked at 5; progress 4
    """,
    "an immune half that ended is not copied": """
        half A immune=60; half B; half C; wait 7; commit A; round
        > A committed; B asked at 3; C asked at 4; progress 3
    """,
    "a decision about the first half ends an immune copy": """
        half A immune=60; half B; wait 7; round; commit A@0; wait 60; round
        > A copied at 2; B asked at 3; progress 2; A committed; B asked at 4; progress 4
    """,
    "less time than usual may be asked for": """
        half A immune=1; wait 2; half B; round
        > A asked at 2; progress 1
    """,
    "what is too old is discarded": """
        half A immune=7200; wait 3601; round
        > A discarded; progress 1
    """,
    "a record that is gone is passed": """
        half A; half B; lose 0; wait 7; round
        > B asked at 2; progress 2
    """,
    "a clock that went back leaves nobody unasked": """
        wait 100; half A; wait -50; round
        > A asked at 1; progress 1
    """,
    "a round that fails is taken up again": """
        half A; half B; commit A; wait 7; fail; round
        > A committed; round failed; progress 0
        mend; round
        > B asked at 2; progress 2
    """,
    "one that cannot be copied by now holds up no other": """
        half A; half B; large A; wait 7; round
        > past 0: A is larger than is allowed; B asked at 2; progress 0
        wait 3600; round
        > past 0: A is larger than is allowed; B discarded; progress 0
        commit A; round
        > A committed; progress 3
    """,
    "nor does one that asked for time": """
        half A immune=60; half B immune=60; half C; large A; wait 7; round
        > past 0: A is larger than is allowed; B copied at 3; C asked at 4; progress 0
    """,
    "operations are needed until progress has passed what they name": """
        half A; half B; half C; commit B; note
        > B committed; operations from 0
        commit C; note; wait 7; round; note
        > C committed; operations from 0; A asked at 3; progress 3; operations from 2
    """,
    "a restart knows what is open": """
        half A; half B; half C; commit B; wait 7; restart
        > B committed; operations from 0; back at 0
        commit B; round
        > B had ended; A asked at 3; C asked at 4; progress 3
        restart; wait 30; round
        > operations from 1; back at 3; A asked at 5; C asked at 6; progress 5
    """,
    "a kill after a copy does not bring the first half back": """
        half A; half B; wait 7; round; kill
        > A asked at 2; B asked at 3; progress 2; back at 2
        commit A@0; wait 30; round
        > A committed; B asked at 4; progress 4
    """,
    "a kill takes unwritten notes, and what they named is open": """
        half A; rollback A; kill; wait 7; round
        > A rolled_back; back at 0; A asked at 1; progress 1
    """,
    "a copy of what had ended unknown to its maker has ended too": """
        half A; rollback A; kill; wait 7; round; note; save
        > A rolled_back; back at 0; A asked at 1; progress 1; operations from 0
        rollback A; note; kill; wait 30; round
        > A rolled_back; operations from 0; back at 2; progress 2
    """,
}


@pytest.mark.parametrize("transcript", TRANSCRIPTS.values(), ids=TRANSCRIPTS)
def test_transcript(transcript: str) -> None:
    world = World()
    for line in transcript.split("\n"):
        text = line.strip()
        if text.startswith(">"):
            assert "; ".join(world.told) == text[1:].strip()
            world.told.clear()
        elif text:
            for command in text.split(";"):
                world.run(command)
    assert not world.told, "what a transcript ends with is told"


VERDICTS = {
    "at its age limit still young": (Half(0, 1_000, None), 7_000, Verdict.YOUNG),
    "a millisecond older": (Half(0, 1_000, None), 7_001, Verdict.CHECK),
    "stored in this millisecond": (Half(0, 1_000, None), 1_000, Verdict.YOUNG),
    "stored in the future": (Half(0, 1_001, None), 1_000, Verdict.CHECK),
    "nobody knows when": (Half(1, None, 60_000), 0, Verdict.CHECK),
    "immune to the last": (Half(0, 1_000, 9_000), 10_000, Verdict.IMMUNE),
    "and no longer": (Half(0, 1_000, 9_000), 10_001, Verdict.CHECK),
    "no immunity at all": (Half(0, 1_000, 0), 1_001, Verdict.CHECK),
    "asked often enough": (Half(3, 0, None), 1, Verdict.DISCARD),
    "asked once less": (Half(2, 0, None), 6_001, Verdict.CHECK),
    "a copy of a young one is young": (Half(1, 0, None), 6_000, Verdict.YOUNG),
    "at its greatest age": (Half(0, 0, None), 3_600_000, Verdict.CHECK),
    "older": (Half(0, 0, None), 3_600_001, Verdict.DISCARD),
    "meant for no topic": (Half(0, 0, None, may_be_checked=False), 1, Verdict.DISCARD),
}


@pytest.mark.parametrize(("half", "now_ms", "verdict"), VERDICTS.values(), ids=VERDICTS)
def test_verdict(half: Half, now_ms: int, verdict: Verdict) -> None:
    assert verdict_on(half, now_ms, RULES) is verdict


def test_a_decision_between_two_steps_is_not_overruled() -> None:
    world = World()
    for line in ("half A immune=60", "half B", "half C", "wait 7"):
        world.run(line)
    steps = check_round(world.ledger, world, RULES, now_ms=world.now_ms, end=3)
    next(steps)  # A is looked past
    next(steps)  # A is copied to make way for B
    world.run("commit B")
    assert list(steps) != []
    assert world.told == ["A copied at 3", "B committed", "C asked at 4"]
    assert world.ledger.progress == 3


def test_so_many_immune_halves_are_not_looked_past_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transaction_checks, "PASSED_MAX", 2)
    world = World()
    for name in "ABCD":
        world.run(f"half {name} immune=600")
    world.run("round")
    assert world.told == ["A copied at 4", "B copied at 5", "C copied at 6", "progress 3"]


def test_an_immune_half_holds_up_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_checks, "BEHIND_MAX", 3)
    world = World()
    for line in ("half A immune=600", "half B", "half C", "round", "half D", "round"):
        world.run(line)
    assert world.told == ["progress 0", "A copied at 4", "progress 1"]


def test_history_is_kept_and_then_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_checks, "HISTORY", 10)
    monkeypatch.setattr(transaction_checks, "HISTORY_SLACK", 5)
    ledger = Ledger(progress=100)
    for at in range(100, 130):
        ledger.end(at, Fate.COMMITTED)
    ledger.advance(131)
    assert ledger.progress == 130
    assert [ledger.fate_of(at) for at in (99, 119, 120, 129, 130)] == [
        Fate.PAST,
        Fate.PAST,
        Fate.COMMITTED,
        Fate.COMMITTED,
        Fate.OPEN,
    ]
