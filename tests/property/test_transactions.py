"""Transactions against an obvious model, through checks, restarts, kills and power cuts.

A producer knows for each of its transactions what it will say whenever it says anything: commit,
rollback, or nothing ever. Whatever happens in between, each ends once: committed and delivered
once, or rolled back and never delivered, or discarded once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ariane.broker.transaction_checks import Fate
from ariane.codes import ResponseCode
from ariane.config import BrokerConfig
from ariane.disk import CrashMode
from ariane.topics import DISCARD_TOPIC, HALF_TOPIC
from tests.unit.broker.rig import SMALL_STORE
from tests.unit.broker.transacting import COMMIT, ROLLBACK, Bank, Begun, checks

CHECK_MAX = 3
ROUND_S = 30
STORE = msgspec.structs.replace(SMALL_STORE, segment_bytes=16 << 10, queue_file_bytes=20 * 100)
SETTINGS = BrokerConfig(transaction_check_max=CHECK_MAX)


@dataclass
class Transaction:
    """What its producer knows of it."""

    decision: int | None  # what it says, if ever
    known: list[Begun] = field(default_factory=list)  # its half message and the copies shown to it
    is_safe: bool = True  # no power cut has taken its half message
    is_rolled_back: bool = False  # as far as the producer has heard


class TransactionModel(RuleBasedStateMachine):
    """The producer's side of it, and what consumers and operators find."""

    @initialize(is_sync=st.booleans())
    def open(self, is_sync: bool) -> None:
        mode = "SYNC_FLUSH" if is_sync else "ASYNC_FLUSH"
        self.bank = Bank(SETTINGS, msgspec.structs.replace(STORE, flush_mode=mode))
        self.producer = self.bank.producer()
        self.transactions: dict[str, Transaction] = {}
        self.seed = 0

    @rule(
        plans=st.lists(
            st.tuples(
                st.sampled_from([COMMIT, ROLLBACK, None]),
                st.sampled_from(["", "", "1", "40", "100"]),  # the time asked for
                st.booleans(),  # whether it is ended at once
            ),
            min_size=1,
            max_size=4,
        )
    )
    def begin(self, plans: list[tuple[int | None, str, bool]]) -> None:
        for decision, immunity, speaks in plans:
            key = f"K{len(self.transactions)}"
            more = f"CHECK_IMMUNITY_TIME_IN_SECONDS\x01{immunity}\x02" if immunity else ""
            half = self.bank.begin(key, more=more)
            self.transactions[key] = Transaction(decision, [half])
            if speaks and decision is not None:
                self.say(half, decision, False)

    @precondition(lambda self: self.transactions)
    @rule(data=st.data(), is_answer=st.booleans())
    def decide(self, data: st.DataObject, is_answer: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.transactions)), "key")
        transaction = self.transactions[key]
        if transaction.is_safe and transaction.decision is not None:
            half = data.draw(st.sampled_from(transaction.known), "half")
            self.say(half, transaction.decision, is_answer)

    @rule(seconds=st.sampled_from([1, 4, 7, ROUND_S]), about=st.sampled_from([None, 0, -1]))
    def wait(self, seconds: int, about: int | None) -> None:
        self.bank.clock.advance(seconds)
        self.hear(about)

    @rule(
        way=st.sampled_from(["stop", "kill", "kill", "cut", "tear"]),
        seconds=st.sampled_from([0, 2, 7]),
        checks=st.sampled_from(["", "saved", "unsaved"]),  # just before
    )
    def restart(self, way: str, seconds: int, checks: str) -> None:
        self.bank.clock.advance(seconds)
        if checks == "unsaved" and way != "stop":
            self.bank.check_before_a_crash()
        elif checks:
            self.bank.state.transactions.check()
        self.hear(about=None)
        if way == "stop":
            self.bank = self.bank.restarted()
        elif way == "kill":
            self.bank = self.bank.killed()
        else:
            self.forget_unflushed()
            self.seed += 1
            mode = CrashMode.DROP if way == "cut" else CrashMode.MIXED
            self.bank = self.bank.killed(mode, self.seed)
        self.producer = self.bank.producer()

    def forget_unflushed(self) -> None:
        """What a power cut takes is not talked about again: its place is taken by others."""
        flushed = self.bank.state.store.flushed
        for transaction in self.transactions.values():
            first, *copies = transaction.known
            transaction.is_safe &= first.log_offset < flushed
            transaction.known = [first, *(half for half in copies if half.log_offset < flushed)]

    @invariant()
    def each_ends_at_most_once(self) -> None:
        ends = self.delivered() + self.discarded()
        assert all(count == 1 for count in ends.values()), ends
        for key in self.delivered():
            assert self.transactions[key].decision == COMMIT, key

    def teardown(self) -> None:
        if not hasattr(self, "bank"):
            return
        for _ in range(CHECK_MAX + 6):  # with the time some ask for
            self.bank.clock.advance(ROUND_S)
            self.hear(about=-1)
            self.each_ends_at_most_once()
        delivered, discarded = self.delivered(), self.discarded()
        for key, transaction in self.transactions.items():
            if transaction.is_safe:
                ends = delivered[key] + discarded[key]
                assert ends == (1 if transaction.decision != ROLLBACK else discarded[key]), key
        ledger, end = self.bank.state.transactions.ledger, self.bank.state.store.max_offset
        assert ledger.progress == end(HALF_TOPIC, 0)
        assert ledger.copied == {}
        self.bank.stop()

    def hear(self, about: int | None) -> None:
        """Take what was asked; answer, if at all, about the copy shown (-1) or the first half."""
        for half, shown in checks(self.producer):
            transaction = self.transactions[half.key]
            assert shown.topic == "T"
            transaction.known.append(half)
            if about is not None and transaction.decision is not None:
                self.say(transaction.known[about], transaction.decision, True)

    def say(self, half: Begun, decision: int, is_answer: bool) -> None:
        transaction = self.transactions[half.key]
        has_ended = bool((self.delivered() + self.discarded())[half.key])
        answer = self.bank.end(half, decision, fromTransactionCheck=str(is_answer).lower())
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.ILLEGAL_OPERATION), answer
        if is_answer and not has_ended and not transaction.is_rolled_back:
            assert answer.code == ResponseCode.SUCCESS, answer
        if answer.code == ResponseCode.SUCCESS:
            transaction.is_rolled_back = decision == ROLLBACK
            assert self.delivered()[half.key] == (decision == COMMIT)
            stored = self.bank.state.transactions.half_at(half.log_offset, half.queue_offset)
            assert stored is not None
            assert self.bank.state.transactions.fate_of(stored) is not Fate.OPEN

    def delivered(self) -> Counter[str]:
        return Counter(self.bank.delivered())

    def discarded(self) -> Counter[str]:
        return Counter(each.properties["UNIQ_KEY"] for each in self.bank.stored(DISCARD_TOPIC))


TestTransactions = TransactionModel.TestCase
TestTransactions.settings = settings(max_examples=100, stateful_step_count=15, deadline=None)
