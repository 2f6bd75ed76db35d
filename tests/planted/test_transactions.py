"""Bugs of transactions, told of Apache's broker or easily made, found by the model of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from ariane.broker import half_messages, transaction_checks
from ariane.broker.pop.flushed import Flushed
from ariane.broker.transaction_checks import Fate, Ledger, Verdict
from ariane.broker.transaction_recovery import _Recovery
from ariane.broker.transactions import Transactions
from ariane.protocol.message import StoredMessage
from tests.planted.finding import told_by
from tests.property.test_transactions import TransactionModel

Patch = pytest.MonkeyPatch


def a_commit_repeated_delivers_again(patch: Patch) -> None:
    """Whatever names a half message that can be read is carried out."""
    open_offset = Transactions._open_offset

    def always(self: Transactions, half: StoredMessage) -> int | None:
        found = open_offset(self, half)
        if found is None:
            self.ledger._set(half.queue_offset, Fate.OPEN)
            return half.queue_offset
        return found

    patch.setattr(Transactions, "_open_offset", always)


def a_commit_whose_note_is_lost_is_forgotten(patch: Patch) -> None:
    """Between a commit and its note lie up to three seconds, and a kill."""
    patch.setattr(_Recovery, "_find_ends_without_note", lambda self: None)


def a_half_comes_back_beside_its_copy(patch: Patch) -> None:
    """Progress is saved every five seconds, copies are made in between."""
    patch.setattr(Ledger, "found", lambda self, copy_offset, first_offset: None)


def progress_is_saved_ahead_of_the_log(patch: Patch) -> None:
    """After a power cut the copy is gone, and progress has passed the half message."""
    patch.setattr(Flushed, "run", lambda self, job: job())


def a_late_decision_leaves_the_copy_open(patch: Patch) -> None:
    """The half message it names is behind progress; the copy is asked about again."""
    end_by = Transactions._end_by

    def only_the_one_named(self: Transactions, half: StoredMessage, fate: Fate) -> None:
        if self.ledger.fate_of(half.queue_offset) is Fate.OPEN:
            end_by(self, half, fate)

    patch.setattr(Transactions, "_end_by", only_the_one_named)


def what_was_given_up_is_delivered_after_all(patch: Patch) -> None:
    """The record of the half message is still there to be committed."""
    end = Ledger.end

    def unless_discarded(self: Ledger, queue_offset: int, fate: Fate) -> None:
        if fate is Fate.DISCARDED:
            fate = Fate.OPEN
            self.progress = queue_offset + 1
            return
        end(self, queue_offset, fate)

    patch.setattr(Ledger, "end", unless_discarded)


def a_copy_does_not_count_its_checks(patch: Patch) -> None:
    """#8311: what nobody ends is copied for ever, and fills the disk."""
    copy_of = half_messages.copy_of

    def uncounted(stored: StoredMessage, first_offset: int, check_times: int) -> Any:
        return copy_of(stored, first_offset, min(check_times, 1))

    patch.setattr(half_messages, "copy_of", uncounted)


def a_half_at_the_boundary_is_never_due(patch: Patch) -> None:
    """#544: the round stops at it, and so does every other round."""
    verdict_on = transaction_checks.verdict_on

    def stuck(half: Any, now_ms: int, rules: Any) -> Verdict:
        verdict = verdict_on(half, now_ms, rules)
        is_first_check = verdict is Verdict.CHECK and half.check_times == 0
        return Verdict.YOUNG if is_first_check and half.began_ms % 2 == 0 else verdict

    patch.setattr(transaction_checks, "verdict_on", stuck)


# By which assertion of the model each is found.
BUGS: dict[str, tuple[Callable[[Patch], None], str]] = {
    bug.__name__: (bug, words)
    for bug, words in (
        (a_commit_repeated_delivers_again, "is not Fate.OPEN"),
        (a_commit_whose_note_is_lost_is_forgotten, "self.delivered()[half.key] == "),
        (a_half_comes_back_beside_its_copy, "count == 1 for count in ends"),
        (progress_is_saved_ahead_of_the_log, "assert ends == "),
        (a_late_decision_leaves_the_copy_open, "self.delivered()[half.key] == "),
        (what_was_given_up_is_delivered_after_all, "assert ledger.copied == {}"),
        (a_copy_does_not_count_its_checks, "assert ends == "),
        (a_half_at_the_boundary_is_never_due, "assert ends == "),
    )
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str, monkeypatch: Patch) -> None:
    plant, words = BUGS[name]
    plant(monkeypatch)
    many = settings(
        max_examples=1000,
        stateful_step_count=15,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
    )
    with pytest.raises(AssertionError) as found:
        run_state_machine_as_test(TransactionModel, settings=many)
    assert words in told_by(found)
