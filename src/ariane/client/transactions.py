"""Transactions: a message that consumers see if and only if the sender's own work succeeded.

The broker keeps a half message that nobody sees. When the block ends well it is committed, when it
raises it is rolled back. A sender that dies in between leaves the broker in doubt; it then asks the
checkers of the producer group, here or in another process, what became of the work.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from enum import Enum
from types import TracebackType
from typing import Any, Final, Self

from ariane.client.delivery import failure_of, is_async, on_thread
from ariane.client.messages import Message, SendReceipt, SendStatus
from ariane.client.session import Session
from ariane.client.trace import Tracer
from ariane.codes import RequestCode, ResponseCode, SystemFlag
from ariane.errors import ClientError, ConnectionLost, RequestFailed, RequestTimeout
from ariane.protocol.command import Command, request
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.transactions import CheckTransactionHeader, EndTransactionHeader
from ariane.protocol.message import StoredMessage, decode_offset_id, decode_records
from ariane.protocol.properties import PRODUCER_GROUP
from ariane.remoting.connection import Connection

FIRST_CHECK_PROPERTY: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"

log = logging.getLogger("ariane.client")


class TransactionState(Enum):
    """What became of the work a half message stands for."""

    COMMIT = int(SystemFlag.TRANSACTION_COMMIT)
    ROLLBACK = int(SystemFlag.TRANSACTION_ROLLBACK)
    UNKNOWN = 0  # ask again later


# True commits, False rolls back, None does not know yet.
Decision = TransactionState | bool | None
Checker = Callable[[StoredMessage], Decision | Awaitable[Decision]]


class Transaction:
    """One message whose fate is that of the block it is sent around; made by `transaction`.

    async with client.transaction("orders", b"...", group="shop") as transaction:
        await database.commit()
    """

    def __init__(
        self,
        session: Session,
        group: str,
        message: Message,
        prepare: Callable[[], Awaitable[SendReceipt]],  # sends the half message
        *,
        timeout_s: float,
        tracer: Tracer | None = None,
    ) -> None:
        self._session = session
        self._group = group
        self._message = message
        self._prepare = prepare
        self._timeout_s = timeout_s
        self._tracer = tracer
        self._receipt: SendReceipt | None = None
        self.state = TransactionState.COMMIT  # what the end of the block will say

    @property
    def receipt(self) -> SendReceipt:
        """Where the half message is."""
        if self._receipt is None:
            raise ClientError("the transaction has not begun; it does so in `async with`")
        return self._receipt

    @property
    def message_id(self) -> str:
        """The id that consumers will see, and checkers."""
        return self.receipt.message_id

    def rollback(self) -> None:
        """Let the block end without the message, though nothing was raised."""
        self.state = TransactionState.ROLLBACK

    def unknown(self) -> None:
        """Leave it open when the block ends: the broker will ask a checker."""
        self.state = TransactionState.UNKNOWN

    async def __aenter__(self) -> Self:
        if self._receipt is not None:
            raise ClientError("a transaction is used once; begin another for the next message")
        self._receipt = await self._prepare()
        if self._receipt.status is not SendStatus.OK:
            # As safe as the broker was told to be, or not at all: nobody should build on it.
            await self._end(TransactionState.ROLLBACK)
            raise RequestFailed.of(
                _CODES[self._receipt.status],
                f"the half message for {self._message.topic!r} was not made safe in time,"
                " so the transaction was rolled back before it began",
            )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        state = self.state
        if error is not None and state is TransactionState.COMMIT:
            # Who is cancelled may have committed elsewhere already: the checker knows.
            failed = isinstance(error, Exception)
            state = TransactionState.ROLLBACK if failed else TransactionState.UNKNOWN
        self.state = state
        try:
            await self._end(state)
        except ClientError as failure:
            if error is None:
                raise
            log.warning(
                "a transaction's end was not told, the broker will ask state=%s id=%s: %s",
                state.name,
                self.message_id,
                failure,
            )

    async def _end(self, state: TransactionState) -> None:
        """Tell the broker; when it does not answer, it will ask, so that is no failure."""
        receipt = self.receipt
        header = EndTransactionHeader(
            topic=receipt.queue.topic,
            group=self._group,
            queue_offset=receipt.queue_offset,
            log_offset=decode_offset_id(receipt.offset_message_id)[1],
            decision=state.value,
            answers_check=False,
            message_id=receipt.message_id,
            transaction_id=receipt.transaction_id,
            broker_name=receipt.queue.broker_name,
        )
        route = await self._session.routes.for_writing(receipt.queue.topic)
        address = route.master(receipt.queue.broker_name)
        if self._tracer is not None:
            self._tracer.ended(self._group, self._message, receipt, _NAMES[state])
        if state is TransactionState.UNKNOWN:
            # Brokers do not answer this one.
            command = request(RequestCode.END_TRANSACTION, header, one_way=True)
            await self._session.post(address, command)
            return
        try:
            command = request(RequestCode.END_TRANSACTION, header)
            await self._session.call(address, command, timeout_s=self._timeout_s)
        except (ConnectionLost, RequestTimeout) as error:
            log.warning(
                "a transaction's end is not confirmed, the broker will ask state=%s id=%s: %s",
                state.name,
                receipt.message_id,
                error,
            )


_CODES: Final = {
    SendStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    SendStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    SendStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}


# RocketMQ's names for states, in traces.
_NAMES: Final = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",
}


class Checkers:
    """Answers brokers that ask what became of a transaction."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._checkers: dict[str, Checker] = {}
        self._elsewhere: set[str] = set()  # groups whose checker is in another process
        session.serve(RequestCode.CHECK_TRANSACTION_STATE, self._asked)
        session.on_open.append(self._be_known)

    def add(self, group: str, checker: Checker) -> None:
        """Let this function answer for the producer group, from now on."""
        if group in self._checkers:
            raise ClientError(f"group {group!r} has a checker already; it needs one only")
        self._checkers[group] = checker
        if self._session.loop is not None:
            self._be_known()

    def trust(self, group: str) -> None:
        """Another process answers for the producer group."""
        self._elsewhere.add(group)

    def must_know(self, group: str) -> None:
        """Raise ClientError unless the group has a checker here."""
        if group not in self._checkers and group not in self._elsewhere:
            raise ClientError(
                f"group {group!r} has no checker, so nobody could say what became of a transaction"
                f" whose end is lost; decorate a function with @client.checker({group!r}) first,"
                " or say client.checked_elsewhere(...) if another process has it"
            )

    def _be_known(self) -> None:
        """Brokers ask whom they know, and half messages may wait on any of them."""
        for group in self._checkers:
            self._session.add_producer(group)
        if self._checkers:
            self._session.be_known_everywhere()

    def _asked(self, connection: Connection, command: Command) -> None:
        header = decode_header(CheckTransactionHeader, command.ext)
        message = decode_records(command.body)[0]
        group = message.properties.get(PRODUCER_GROUP, "")
        checker = self._checkers.get(group)
        if checker is None:
            log.info(
                "no checker for a transaction group=%s message_id=%s", group, message.message_id
            )
            return
        self._session.spawn(
            self._answer(connection, header, message, group, checker), "a transaction check"
        )

    async def _answer(
        self,
        connection: Connection,
        check: CheckTransactionHeader,
        message: StoredMessage,
        group: str,
        checker: Checker,
    ) -> None:
        header = EndTransactionHeader(
            topic=message.topic,
            group=group,
            queue_offset=check.queue_offset,
            log_offset=check.log_offset,
            decision=(await _decided(checker, message)).value,
            answers_check=True,
            message_id=check.message_id or message.message_id,
            transaction_id=check.transaction_id,
            broker_name=check.broker_name,
        )
        connection.send(request(RequestCode.END_TRANSACTION, header, one_way=True))


async def _decided(checker: Checker, message: StoredMessage) -> TransactionState:
    """What the checker says; one that fails does not know."""
    try:
        # A plain function may block: it has a thread.
        asked: Any = checker(message) if is_async(checker) else on_thread(checker, message)
        decision = await asked
    except BaseException as error:
        failure = failure_of(error)
        log.error("a checker failed message_id=%s", message.message_id, exc_info=failure)
        return TransactionState.UNKNOWN
    if isinstance(decision, TransactionState):
        return decision
    if decision is None:
        return TransactionState.UNKNOWN
    return TransactionState.COMMIT if decision else TransactionState.ROLLBACK
