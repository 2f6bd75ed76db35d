"""By bulk reads, which Ariane's broker answers: megabytes of records at a time.

The head of an answer says where the next one begins, so that is asked for while the body is still
on its way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ariane.codes import RequestCode, ResponseCode
from ariane.errors import AccessImpossible, ProtocolError
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.bulk import BulkReadHeader, BulkReadReply
from ariane.spark.bytes.contract import AccessOptions, QueueBounds, QueueRange
from ariane.spark.bytes.link import Answer, Link
from ariane.spark.bytes.remote import Piece, refusal
from ariane.spark.bytes.wire import tag_expression

if TYPE_CHECKING:
    from ariane.spark.columns import Batches

READ_BYTES_MAX: Final = 32 << 20  # what a broker gives at most
OUTCOMES: Final = frozenset({ResponseCode.SUCCESS, ResponseCode.PULL_OFFSET_MOVED})


def pieces(
    link: Link, queues: QueueRange, batches: Batches, options: AccessOptions
) -> Iterator[Piece]:
    """Answers to bulk reads, from the gatherer's next offset on."""
    reads = _Reads(link, queues, batches, options)
    reads.ask(batches.gatherer.next_offset)
    while reads.is_waiting:
        answer = reads.take()
        said = decode_header(BulkReadReply, answer.ext)
        bounds = QueueBounds(said.min_offset, said.max_offset)
        yield Piece(answer.body, said.next_offset, bounds)


class _Reads:
    """Bulk reads of one range, one ahead of what is used."""

    def __init__(
        self, link: Link, queues: QueueRange, batches: Batches, options: AccessOptions
    ) -> None:
        self._link = link
        self._queues = queues
        self._tags = None if batches.tags is None else tag_expression(batches.tags)
        self._bytes_max = min(options.fetch_bytes, READ_BYTES_MAX)
        self._number = 0
        self._first = 0

    @property
    def is_waiting(self) -> bool:
        """Whether an answer is on its way."""
        return self._number != 0

    def ask(self, first: int) -> None:
        """Ask for what lies between `first` and the end of the range."""
        header = BulkReadHeader(
            topic=self._queues.topic,
            queue_id=self._queues.queue_id,
            queue_offset=first,
            end_offset=self._queues.end,
            bytes_max=self._bytes_max,
            subscription=self._tags,
        )
        self._first = first
        self._number = self._link.ask(RequestCode.BULK_READ, header)

    def take(self) -> Answer:
        """The answer; if there is more to ask for, that has been asked when this returns."""
        number, self._number = self._number, 0
        return self._link.take(number, self._look)

    def _look(self, answer: Answer) -> None:
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise AccessImpossible(f"{self._link.address} knows no bulk reads, as Apache's broker")
        if answer.code not in OUTCOMES:
            raise refusal(answer.code, answer.remark, self._link)
        said = decode_header(BulkReadReply, answer.ext)
        if answer.code == ResponseCode.SUCCESS:
            if said.next_offset <= self._first:
                raise ProtocolError(f"{self._link.address} brings a reader no further")
            if said.next_offset < self._queues.end:
                self.ask(said.next_offset)
        elif said.min_offset <= self._first and self._queues.end <= said.max_offset:
            raise refusal(answer.code, answer.remark, self._link)
