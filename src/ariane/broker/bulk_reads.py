"""Bulk reads under way: gathered on a thread, one at a time for each connection.

A peer that takes its answers slowly waits with its next read until it has taken them, so what it
costs is one answer. All answers that nobody has taken yet count against the same limit as those of
pulls. What is read need not be in memory: the thread waits for the disk, not the loop.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ariane.broker.flow_control import Busy
from ariane.broker.requests import Reply, Request
from ariane.codes import ResponseCode
from ariane.protocol.command import LENGTHS, Command, reply
from ariane.protocol.headers.bulk import BulkReadHeader, BulkReadReply
from ariane.store.bulk import BulkRead
from ariane.topics import TOOLS_GROUP

if TYPE_CHECKING:
    from ariane.broker.state import BrokerState
    from ariane.remoting.connection import Connection

WAITING_MAX: Final = 16  # reads of one connection
READ_BYTES_MAX: Final = 32 << 20


@dataclass(slots=True)
class _Peer:
    waiting: deque[tuple[Request[BulkReadHeader], frozenset[int] | None]] = field(
        default_factory=deque
    )
    is_served: bool = False


class BulkReads:
    """Carries out bulk reads in the order each connection asked for them."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._peers: dict[Connection, _Peer] = {}

    def add(self, request: Request[BulkReadHeader], tag_codes: frozenset[int] | None) -> None:
        """Answer when it is its turn; raises Busy when too many wait already."""
        connection = request.connection
        peer = self._peers.get(connection)
        if peer is None:
            peer = self._peers[connection] = _Peer()
            connection.on_close.append(self._forget)
            connection.on_drain.append(self._go_on)
        if len(peer.waiting) >= WAITING_MAX:
            raise Busy(f"{WAITING_MAX} bulk reads wait already; ask for more when they are done")
        peer.waiting.append((request, tag_codes))
        self._go_on(connection)

    def _go_on(self, connection: Connection) -> None:
        peer = self._peers.get(connection)
        while peer and peer.waiting and not peer.is_served and not connection.is_congested:
            request, tag_codes = peer.waiting.popleft()
            header = request.header
            read = self._state.store.bulk_read(
                header.topic,
                header.queue_id,
                header.queue_offset,
                header.end_offset,
                bytes_max=max(1, min(header.bytes_max, READ_BYTES_MAX)),
                tag_codes=tag_codes,
            )
            if read is None:
                request.answer(self._nothing(header))
            else:
                peer.is_served = True
                self._start(request, read)

    def _start(self, request: Request[BulkReadHeader], read: BulkRead) -> None:
        header = request.header
        bounds = self._bounds(header)

        def job() -> bytes:
            read.find()
            said = BulkReadReply(
                next_offset=read.next_offset, min_offset=bounds[0], max_offset=bounds[1]
            )
            return read.frame(head_of(reply(request.command, header=said), read.byte_count))

        self._state.store.off_loop(job, lambda future: self._done(request, read, future))

    def _done(
        self, request: Request[BulkReadHeader], read: BulkRead, future: Future[bytes]
    ) -> None:
        connection, topic = request.connection, request.header.topic
        peer = self._peers.get(connection)
        if peer is None:
            return  # it is gone
        peer.is_served = False
        if error := future.exception():
            remark = f"the messages could not be gathered: {error}"
            request.answer(Reply.refusal(ResponseCode.SYSTEM_ERROR, remark))
        else:
            frame = future.result()
            connection.send_bytes(frame)
            self._state.stats.got_by(topic, TOOLS_GROUP).add(read.count, read.byte_count)
            self._state.flow.answered(len(frame))
        self._go_on(connection)

    def _nothing(self, header: BulkReadHeader) -> Reply:
        """The answer where there is no message to be seen: the bounds say why."""
        first, end = self._bounds(header)
        return Reply.of(
            BulkReadReply(next_offset=header.queue_offset, min_offset=first, max_offset=end),
            code=ResponseCode.PULL_OFFSET_MOVED,
            remark=f"offset {header.queue_offset} is not among those from {first} to {end}",
        )

    def _bounds(self, header: BulkReadHeader) -> tuple[int, int]:
        store = self._state.store
        return (
            store.min_offset(header.topic, header.queue_id),
            store.max_offset(header.topic, header.queue_id),
        )

    def _forget(self, connection: Connection) -> None:
        self._peers.pop(connection, None)


def head_of(answer: Command, body_bytes: int) -> bytes:
    """A frame up to its body, which is written behind it where it will be sent from."""
    whole = answer.encode()
    size, word = LENGTHS.unpack_from(whole)
    return LENGTHS.pack(size + body_bytes, word) + whole[LENGTHS.size :]
