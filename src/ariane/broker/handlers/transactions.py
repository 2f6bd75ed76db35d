"""END_TRANSACTION: how a producer ends what it began; and discarded transactions tried anew."""

from __future__ import annotations

from typing import Final

from ariane.broker import half_messages
from ariane.broker.requests import Reply, Request
from ariane.broker.state import BrokerState
from ariane.broker.transaction_checks import Fate
from ariane.codes import ResponseCode, SystemFlag
from ariane.errors import InvalidParameter, ProtocolError, RequestRejected
from ariane.protocol.headers.transactions import EndTransactionHeader, ResumeCheckHeader
from ariane.protocol.identifiers import decode_offset_id
from ariane.protocol.message import StoredMessage, decode_records
from ariane.protocol.properties import PRODUCER_GROUP
from ariane.topics import DISCARD_TOPIC

UNKNOWN: Final = 0
FATES: Final = {
    int(SystemFlag.TRANSACTION_COMMIT): Fate.COMMITTED,
    int(SystemFlag.TRANSACTION_ROLLBACK): Fate.ROLLED_BACK,
}
HOW_IT_ENDED: Final = {
    Fate.COMMITTED: "it was committed",
    Fate.ROLLED_BACK: "it was rolled back",
    Fate.DISCARDED: f"it was asked about too often and went to {DISCARD_TOPIC}",
    Fate.GONE: "its record is no longer there",
    Fate.ENDED: "how is no longer known",
}


class IllegalOperation(RequestRejected):
    """The transaction is not in a state to be ended so."""

    code = ResponseCode.ILLEGAL_OPERATION


def end_transaction(request: Request[EndTransactionHeader], state: BrokerState) -> Reply:
    """Commit or roll back a half message; said again, it is not done again."""
    try:
        return carry_out(request.header, state)
    except RequestRejected as rejection:
        if request.command.is_one_way:  # nobody else will hear of it
            state.transactions.refused(str(rejection))
        raise


def carry_out(header: EndTransactionHeader, state: BrokerState) -> Reply:
    """End the transaction as its producer says, or raise RequestRejected."""
    if header.decision == UNKNOWN:
        return Reply.of()  # there will be a check
    fate = FATES.get(header.decision)
    if fate is None:
        raise InvalidParameter(
            f"commitOrRollback={header.decision} is not 8 (commit), 12 (rollback) or 0 (unknown)"
        )
    half = half_of(header, state)
    so_far = state.transactions.fate_of(half)
    if so_far is fate:
        return Reply.of()
    if so_far is not Fate.OPEN:
        raise IllegalOperation(f"the transaction has ended already: {HOW_IT_ENDED[so_far]}")
    if fate is Fate.ROLLED_BACK:
        state.transactions.roll_back(half)
        return Reply.of()
    placed = state.transactions.commit(half)
    return Reply.of(after=state.ack_at(placed.end_offset, waits=True))


def half_of(header: EndTransactionHeader, state: BrokerState) -> StoredMessage:
    """The half message a producer means, if it is its own and may still be ended by it."""
    half = state.transactions.half_at(header.log_offset, header.queue_offset)
    if half is None or not half_messages.is_meant_for_a_topic(half.properties):
        raise RequestRejected(
            f"Find prepared transaction message failed: there is no half message at"
            f" commitLogOffset={header.log_offset} and tranStateTableOffset={header.queue_offset}"
        )
    if half.properties.get(PRODUCER_GROUP) != header.group:
        raise RequestRejected(f"The producer group wrong: the message is not of {header.group}")
    if not header.answers_check and is_late(half, state):
        raise IllegalOperation(
            "the time the message asked for before its first check is over; wait for the check"
        )
    return half


def is_late(half: StoredMessage, state: BrokerState) -> bool:
    """Whether only an answer to a check may end it: it had named a time for that."""
    immunity_ms = half_messages.immunity_ms_of(half.properties)
    if immunity_ms is None:
        return False
    began_ms = half_messages.described(half).began_ms
    if began_ms is None:
        return False
    allowed_ms = max(immunity_ms, state.config.transaction_timeout_ms)
    return state.clock.wall_ms() - began_ms > allowed_ms


def resume_check(request: Request[ResumeCheckHeader], state: BrokerState) -> Reply:
    """Begin a transaction anew that was discarded because nobody ended it."""
    message_id = request.header.message_id or ""
    try:
        _, log_offset = decode_offset_id(message_id)
    except ProtocolError as error:
        raise InvalidParameter(f"msgId {message_id!r}: {error}") from error
    record = state.store.record_at(log_offset)
    discarded = None if record is None else decode_records(record)[0]
    if discarded is None or not state.transactions.may_resume(discarded):
        raise RequestRejected(
            f"Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed: {message_id} is not a message of"
            f" {DISCARD_TOPIC}, or it was put back before"
        )
    placed = state.transactions.resume(discarded)
    return Reply.of(after=state.ack_at(placed.end_offset, waits=True))
