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
from ariane.protocol.command import LENGTHS
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.pull import PullHeader, PullReply
from ariane.spark.bytes.contract import TAG, AccessOptions, QueueBounds, QueueRange
from ariane.spark.bytes.link import Answer, Link, encode
from ariane.spark.bytes.remote import Piece, refusal
from ariane.topics import TOOLS_GROUP

if TYPE_CHECKING:
    from ariane.spark.columns import Batches

AHEAD: Final = 32  # pulls on their way; asked for when half of them have been answered
AHEAD_FILTERED: Final = 2  # where nobody can guess how far an answer gets
COUNT_MAX: Final = 1024
PULL_BYTES_MAX: Final = 1 << 20
PROBE_EVERY: Final = 64  # pulls, then one asks for more than it expects

NEXT_OFFSET: Final = "nextBeginOffset"
# Numbers that stand for others in a request that is written once.
NUMBER_MARK: Final = 1_987_654_321
OFFSET_MARK: Final = 8_765_432_109_876_543_210
COUNT_MARK: Final = 2_087_654_321

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
        self._end = queues.end
        self._frames = _Frames(queues, batches.tags, min(options.fetch_bytes, PULL_BYTES_MAX))
        self._ahead = AHEAD if batches.tags is None else AHEAD_FILTERED
        self._waiting: deque[tuple[int, int]] = deque()  # first offset, number of the request
        self._next_first = queues.start
        self._asked = 0
        self._stride = 0  # what an answer brings; not known before the first

    def next(self, position: int) -> tuple[int, Answer]:
        """The next answer, and the offset it was asked from; more are asked for."""
        self._next_first = max(self._next_first, position) if self._waiting else position
        if len(self._waiting) <= self._ahead // 2:
            self._ask(self._ahead if self._stride else 1)
        first, number = self._waiting.popleft()
        answer = self._link.take(number)
        if answer.code == ResponseCode.SUCCESS:
            brought = int(answer.ext[NEXT_OFFSET]) - first
            if brought > 0 and not (self._stride and first + brought >= self._end):
                self._stride = brought
                self._next_first = max(self._next_first, first + brought)
        return first, answer

    def one(self, first: int, count: int) -> Answer:
        """Ask for a gap, and wait."""
        number = self._link.new_number()
        self._link.send(self._frames.pull(number, first, min(count, COUNT_MAX)))
        return self._link.take(number)

    def _ask(self, depth: int) -> None:
        """Ask until so many are on their way; together, as they are cheaper for the broker then."""
        frames = []
        while len(self._waiting) < depth and self._next_first < self._end:
            self._asked += 1
            is_probe = not self._stride or self._asked % PROBE_EVERY == 0
            first, number = self._next_first, self._link.new_number()
            count = min(COUNT_MAX if is_probe else self._stride, self._end - first)
            frames.append(self._frames.pull(number, first, count))
            self._waiting.append((first, number))
            self._next_first += self._stride or COUNT_MAX
        if frames:
            self._link.send(b"".join(frames))


class _Frames:
    """Requests of one range, which differ in three numbers: written once, and filled in."""

    def __init__(self, queues: QueueRange, tags: frozenset[bytes] | None, bytes_max: int) -> None:
        header = PullHeader(
            group=TOOLS_GROUP,
            topic=queues.topic,
            queue_id=queues.queue_id,
            queue_offset=OFFSET_MARK,
            count_max=COUNT_MARK,
            system_flag=int(PullFlag.SUBSCRIPTION),
            commit_offset=0,
            suspend_ms=0,
            subscription_version=0,
            subscription="*" if tags is None else tag_expression(tags),
            expression_type=TAG,
            bytes_max=bytes_max,
            request_source=-1,
            broker_name=queues.broker,
        )
        whole = encode(RequestCode.PULL_MESSAGE, header, b"", NUMBER_MARK)[LENGTHS.size :]
        # With its name around it a mark stands there once: within a text quotes are escaped.
        before, rest = whole.split(b'"queueOffset":"%d"' % OFFSET_MARK)
        between, rest = rest.split(b'"maxMsgNums":"%d"' % COUNT_MARK)
        further, after = rest.split(b'"opaque":%d' % NUMBER_MARK)
        self._parts = (
            before + b'"queueOffset":"',
            b'"' + between + b'"maxMsgNums":"',
            b'"' + further + b'"opaque":',
            after,
        )

    def pull(self, number: int, first: int, count: int) -> bytes:
        """One pull."""
        before, between, further, after = self._parts
        header = b"%b%d%b%d%b%d%b" % (before, first, between, count, further, number, after)
        return LENGTHS.pack(4 + len(header), len(header)) + header


def _piece(answer: Answer, link: Link, first: int, batches: Batches) -> Piece:
    if answer.code not in OUTCOMES:
        raise refusal(answer.code, answer.remark, link)
    if answer.code == ResponseCode.SUCCESS:  # nearly always, and there are many
        ext = answer.ext
        bounds = QueueBounds(int(ext["minOffset"]), int(ext["maxOffset"]))
        return Piece(answer.body, int(ext[NEXT_OFFSET]), bounds)
    said = decode_header(PullReply, answer.ext)
    bounds = QueueBounds(said.min_offset, said.max_offset)
    if answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY and said.next_offset > first:
        return Piece(b"", said.next_offset, bounds, is_lost=answer.remark == REMOVED)
    # Nothing there, or not there any more: the bounds tell which; if they do not, ask again.
    if first >= bounds.end or batches.gatherer.next_offset < bounds.first:
        return Piece(b"", batches.gatherer.next_offset, bounds)
    raise refusal(ResponseCode.SYSTEM_BUSY, f"nothing at {first}: {answer.remark}", link)


def tag_expression(tags: frozenset[bytes]) -> str:
    """Tags as a subscription names them."""
    return " || ".join(sorted(tag.decode() for tag in tags))
