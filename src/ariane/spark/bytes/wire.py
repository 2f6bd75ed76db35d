"""Over the wire by pulls, which every broker of RocketMQ answers.

A broker gives a few messages for a pull, 32 by default, so many pulls are asked ahead. Where each
begins is a guess: as far on as the last ones brought. An answer that brought less leaves a gap,
which is asked for before the next is used; one that brought more overlaps, and the gatherer takes
each offset once. Nothing is ever held by the broker, committed, or told to a group.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ariane.codes import PullFlag, RequestCode, ResponseCode
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.pull import PullHeader, PullReply
from ariane.spark.bytes.contract import TAG, AccessOptions, QueueBounds, QueueRange
from ariane.spark.bytes.link import Answer, Link
from ariane.spark.bytes.remote import Piece, refusal
from ariane.topics import TOOLS_GROUP

if TYPE_CHECKING:
    from ariane.spark.columns import Batches

AHEAD: Final = 16  # pulls on their way
AHEAD_FILTERED: Final = 2  # where nobody can guess how far an answer gets
COUNT_MAX: Final = 1024
PULL_BYTES_MAX: Final = 1 << 20
PROBE_EVERY: Final = 64  # pulls, then one asks for more than it expects

REMOVED: Final = "MESSAGE_WAS_REMOVING"
OUTCOMES: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


def pieces(
    link: Link, queues: QueueRange, batches: Batches, options: AccessOptions
) -> Iterator[Piece]:
    """Answers to pulls, from the gatherer's next offset on."""
    pulls = _Pulls(link, queues, batches, options)
    gatherer = batches.gatherer
    while not gatherer.is_done():
        first, answer = pulls.next(gatherer.next_offset)
        while first > gatherer.next_offset and not gatherer.is_done():
            position = gatherer.next_offset
            yield _piece(pulls.one(position, first - position), link, position, batches)
        yield _piece(answer, link, first, batches)


class _Pulls:
    """Pulls of one range, asked ahead."""

    def __init__(
        self, link: Link, queues: QueueRange, batches: Batches, options: AccessOptions
    ) -> None:
        self._link = link
        self._queues = queues
        self._tags = batches.tags
        self._bytes_max = min(options.fetch_bytes, PULL_BYTES_MAX)
        filtered = self._tags is not None
        self._ahead = AHEAD_FILTERED if filtered else AHEAD
        self._waiting: deque[tuple[int, int]] = deque()  # first offset, number of the request
        self._next_first = queues.start
        self._asked = 0
        self._stride = 0  # what an answer brings; not known before the first

    def next(self, position: int) -> tuple[int, Answer]:
        """The next answer, and the offset it was asked from; more are asked for."""
        self._next_first = max(self._next_first, position) if self._waiting else position
        depth = self._ahead if self._stride else 1
        while len(self._waiting) < depth and self._next_first < self._queues.end:
            self._ask()
        first, number = self._waiting.popleft()
        answer = self._link.take(number)
        if answer.code == ResponseCode.SUCCESS:
            brought = decode_header(PullReply, answer.ext).next_offset - first
            is_last = first + brought >= self._queues.end
            if brought > 0 and not (is_last and self._stride):
                self._stride = brought
                self._next_first = max(self._next_first, first + brought)
        return first, answer

    def one(self, first: int, count: int) -> Answer:
        """Ask for a gap, and wait."""
        return self._link.take(self._pull(first, count))

    def _ask(self) -> None:
        self._asked += 1
        is_probe = not self._stride or self._asked % PROBE_EVERY == 0
        first = self._next_first
        self._waiting.append((first, self._pull(first, COUNT_MAX if is_probe else self._stride)))
        self._next_first += self._stride or COUNT_MAX

    def _pull(self, first: int, count: int) -> int:
        header = PullHeader(
            group=TOOLS_GROUP,
            topic=self._queues.topic,
            queue_id=self._queues.queue_id,
            queue_offset=first,
            count_max=max(1, min(count, self._queues.end - first, COUNT_MAX)),
            system_flag=int(PullFlag.SUBSCRIPTION),
            commit_offset=0,
            suspend_ms=0,
            subscription_version=0,
            subscription="*" if self._tags is None else tag_expression(self._tags),
            expression_type=TAG,
            bytes_max=self._bytes_max,
            request_source=-1,
            broker_name=self._queues.broker,
        )
        return self._link.ask(RequestCode.PULL_MESSAGE, header)


def _piece(answer: Answer, link: Link, first: int, batches: Batches) -> Piece:
    if answer.code not in OUTCOMES:
        raise refusal(answer.code, answer.remark, link)
    said = decode_header(PullReply, answer.ext)
    bounds = QueueBounds(said.min_offset, said.max_offset)
    if answer.code == ResponseCode.SUCCESS:
        return Piece(answer.body, said.next_offset, bounds)
    if answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY and said.next_offset > first:
        return Piece(b"", said.next_offset, bounds, is_lost=answer.remark == REMOVED)
    # Nothing there, or not there any more: the bounds tell which; if they do not, ask again.
    if first >= bounds.end or batches.gatherer.next_offset < bounds.first:
        return Piece(b"", batches.gatherer.next_offset, bounds)
    raise refusal(ResponseCode.SYSTEM_BUSY, f"nothing at {first}: {answer.remark}", link)


def tag_expression(tags: frozenset[bytes]) -> str:
    """Tags as a subscription names them."""
    return " || ".join(sorted(tag.decode() for tag in tags))
