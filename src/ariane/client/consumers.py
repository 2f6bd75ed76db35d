"""The consumers of one client, and what brokers ask of them.

A broker tells a member that its group has changed (40) or that it shall go on elsewhere (220). It
passes on what administrators want to know: offsets (221), what a member is doing (307), and what
its handler makes of a single message (309).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from ariane.client.received import PolledMessage, ReceivedMessage
from ariane.client.records import decode
from ariane.client.session import Session
from ariane.codes import RequestCode, ResponseCode
from ariane.errors import ClientError, ProtocolError, RequestRejected
from ariane.protocol import fastjson
from ariane.protocol.bodies import MessageQueue, ResetOffsets
from ariane.protocol.bodies.consumers import ConsumerStatus, DirectResult, RunningInfo
from ariane.protocol.command import Command, reply
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.clients import ConsumeDirectlyHeader, RunningInfoHeader
from ariane.protocol.headers.groups import ConsumerGroupHeader, GroupHeader
from ariane.protocol.headers.offsets import ResetOffsetHeader
from ariane.remoting.connection import Connection

log = logging.getLogger("ariane.client")


class Member(Protocol):
    """A consumer as brokers see it."""

    @property
    def group(self) -> str:
        """The group it belongs to."""
        ...

    @property
    def is_orderly(self) -> bool:
        """Whether it keeps the order of queues."""
        ...

    @property
    def message_kind(self) -> type[ReceivedMessage]:
        """What its handler is called with."""
        ...

    @property
    def is_closing(self) -> bool:
        """Whether it has been closed, or is about to be."""
        ...

    async def close(self) -> None:
        """Leave the group."""
        ...

    def rebalance(self) -> None:
        """The group has changed."""
        ...

    def reset(self, offsets: dict[MessageQueue, int]) -> None:
        """Go on elsewhere in these queues."""
        ...

    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        """How far it has got in each queue of the topic."""
        ...

    def running_info(self, *, with_stacks: bool) -> RunningInfo:
        """What it is doing."""
        ...

    async def consume_directly(self, message: ReceivedMessage) -> None:
        """Consume one message now; raises what its handler raises."""
        ...


class Registry:
    """Finds the consumer that a broker means, by its group."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._members: dict[str, Member] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        for code, handler in {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._group_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
        }.items():
            session.serve(code, handler)

    async def add(self, member: Member) -> None:
        """Be asked for the member's group from now on; a client has one member of a group.

        One that is closing is waited for.
        """
        before = self._members.get(member.group)
        if before is not None and before.is_closing:
            await asyncio.gather(before.close(), return_exceptions=True)
        if member.group in self._members:
            raise ClientError(
                f"this client consumes for the group {member.group!r} already; subscribe that"
                " consumer to more topics, or make another client"
            )
        self._members[member.group] = member

    def has(self, member: Member) -> bool:
        """Whether the group's member is this one."""
        return self._members.get(member.group) is member

    def remove(self, member: Member) -> None:
        """Be asked no more."""
        if self.has(member):
            del self._members[member.group]

    def _member(self, group: str) -> Member:
        member = self._members.get(group)
        if member is None:
            raise RequestRejected(f"no consumer of the group {group!r} is here")
        return member

    def _group_changed(self, connection: Connection, command: Command) -> None:
        group = decode_header(ConsumerGroupHeader, command.ext).group
        log.info("group changed group=%s", group)
        if group in self._members:
            self._members[group].rebalance()

    def _reset(self, connection: Connection, command: Command) -> Command:
        header = decode_header(ResetOffsetHeader, command.ext)
        offsets = fastjson.decode(command.body, ResetOffsets).offsets if command.body else {}
        log.info("offsets reset group=%s topic=%s offsets=%s", header.group, header.topic, offsets)
        if header.group in self._members:
            self._members[header.group].reset(
                {queue: offset for queue, offset in offsets.items() if queue.topic == header.topic}
            )
        return reply(command)

    def _status(self, connection: Connection, command: Command) -> Command:
        header = decode_header(GroupHeader, command.ext)
        body = ConsumerStatus(queues=self._member(header.group).offsets(header.topic or ""))
        return reply(command, body=fastjson.encode(body))

    def _running_info(self, connection: Connection, command: Command) -> Command:
        header = decode_header(RunningInfoHeader, command.ext)
        member = self._member(header.group)
        info = member.running_info(with_stacks=bool(header.with_stacks))
        return reply(command, body=fastjson.encode(info))

    def _consume_directly(self, connection: Connection, command: Command) -> None:
        header = decode_header(ConsumeDirectlyHeader, command.ext)
        work = self._answer_directly(self._member(header.group), header, connection, command)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer_directly(
        self,
        member: Member,
        header: ConsumeDirectlyHeader,
        connection: Connection,
        command: Command,
    ) -> None:
        clock = self._session.clock
        begun_s = clock.monotonic_s()
        holder = DirectHolder(self._session, header.broker_name or "")
        remark = None
        try:
            (message,) = decode(command.body, member.message_kind, holder)
        except (ProtocolError, ValueError) as error:
            remark = f"the request does not hold one message: {error}"
            connection.send(reply(command, ResponseCode.SYSTEM_ERROR, remark=remark))
            return
        try:
            await member.consume_directly(message)
            result = "CR_LATER" if holder.was_refused else "CR_SUCCESS"
        except Exception as error:  # what the handler raised is the answer
            result, remark = "CR_THROW_EXCEPTION", f"{type(error).__name__}: {error}"
        body = DirectResult(
            result=result,
            is_orderly=member.is_orderly,
            remark=remark,
            spent_ms=round((clock.monotonic_s() - begun_s) * 1000),
        )
        connection.send(reply(command, body=fastjson.encode(body)))


class DirectHolder:
    """Holds a message that belongs to nobody's share: nothing is committed or sent back."""

    def __init__(self, session: Session, broker_name: str) -> None:
        self.session = session
        self.was_refused = False
        self._broker_name = broker_name

    def queue_of(self, message: PolledMessage) -> MessageQueue:
        """The queue it came from."""
        return MessageQueue(
            topic=message.stored_topic,
            broker_name=self._broker_name,
            queue_id=message.queue_id,
        )

    async def ack(self, message: ReceivedMessage) -> None:
        """It has been consumed."""
        message.is_done = True

    async def nack(self, message: ReceivedMessage, delay_s: float | None) -> None:
        """It has not."""
        message.is_done = self.was_refused = True

    async def extend(self, message: ReceivedMessage, for_s: float | None) -> None:
        """It may take any time."""
