"""The strings of pop: what a consumer is told of each message, and brings back to acknowledge it.

A handle has eight words: where the checkpoint starts, when it was popped, for how long, the revive
queue, the kind of topic, the broker, the queue, the message's queue offset. Answers hold the same
per queue rather than per message, and clients put the handles together by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ariane.errors import BadHeader
from ariane.topics import RETRY_PREFIX

ORDER_QUEUE_ID: Final = 999  # the revive queue of ordered pops, which have no checkpoint
NORMAL: Final = "0"
RETRY_V1: Final = "1"
RETRY_V2: Final = "2"
SEPARATORS: Final = {RETRY_V1: "_", RETRY_V2: "+"}
WORDS_MIN: Final = 6  # old clients leave out the queue and the offset, which the request has too
NUMBER_CHARACTERS_MAX: Final = 19


class Handle(NamedTuple):
    """What a consumer says of the pop it got a message by."""

    first: int  # where the checkpoint starts
    popped_ms: int
    invisible_ms: int
    revive_queue_id: int
    mark: str
    broker_name: str

    @property
    def is_ordered(self) -> bool:
        """Whether the message was popped in order."""
        return self.revive_queue_id == ORDER_QUEUE_ID

    @property
    def due_ms(self) -> int:
        """When the message is visible again unless it was acknowledged."""
        return self.popped_ms + self.invisible_ms


def parse_handle(text: str) -> Handle:
    """Read `extraInfo`; raises BadHeader."""
    words = text.split(" ")
    if len(words) < WORDS_MIN:
        raise BadHeader(
            f"extraInfo {text!r} has {len(words)} words; a handle has 8: checkpoint offset, pop"
            " time, invisible time, revive queue, retry mark, broker, queue, offset"
        )
    first, popped_ms, invisible_ms, revive_queue_id = (_number(word, text) for word in words[:4])
    return Handle(first, popped_ms, invisible_ms, revive_queue_id, words[4], words[5])


def mark_of(topic: str) -> str:
    """What kind of topic it is: the one asked for, or a retry topic of either form."""
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if SEPARATORS[RETRY_V2] in topic else RETRY_V1


def retry_topic_of(topic: str, group: str, mark: str) -> str:
    """Where a group's unacknowledged messages of a topic come back."""
    return f"{RETRY_PREFIX}{group}{SEPARATORS[mark]}{topic}"


def real_topic_of(topic: str, group: str, mark: str) -> str:
    """The topic a message lies in, by the topic that was popped and the mark."""
    if mark == NORMAL:
        return topic
    if mark not in SEPARATORS:
        raise BadHeader(f"retry mark {mark!r}; it is 0 (no retry), 1 or 2 (forms of retry topics)")
    return retry_topic_of(topic, group, mark)


def popped_topic_of(topic: str, group: str) -> str:
    """The topic a consumer pops to get messages of this one, which may be a retry topic."""
    for separator in SEPARATORS.values():
        prefix = f"{RETRY_PREFIX}{group}{separator}"
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return topic


def handle_text(
    *,
    first: int,
    popped_ms: int,
    invisible_ms: int,
    revive_queue_id: int,
    mark: str,
    broker_name: str,
    queue_id: int,
    queue_offset: int,
) -> str:
    """The handle of one message, as POP_CK holds it."""
    return (
        f"{first} {popped_ms} {invisible_ms} {revive_queue_id} {mark} {broker_name} {queue_id}"
        f" {queue_offset}"
    )


def offsets_text(mark: str, queue_id: int, offsets: Iterable[int]) -> str:
    """One element of `msgOffsetInfo`."""
    return f"{mark} {queue_id} {','.join(map(str, offsets))}"


def counts_text(mark: str, queue_id: int, counts: Sequence[tuple[int, int]], least: int) -> str:
    """The elements of `orderCountInfo` for a queue: (queue offset, deliveries), and the least."""
    elements = [f"{mark} qo{queue_id}%{offset} {count}" for offset, count in counts]
    return ";".join([*elements, f"{mark} {queue_id} {least}"])


def _number(word: str, text: str) -> int:
    digits = word.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= NUMBER_CHARACTERS_MAX):
        raise BadHeader(f"extraInfo {text!r}: {word!r} is not a number")
    number = int(word)
    if not -(1 << 63) <= number < 1 << 63:
        raise BadHeader(f"extraInfo {text!r}: {word!r} does not fit into 64 bits")
    return number
