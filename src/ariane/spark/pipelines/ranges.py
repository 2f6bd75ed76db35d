"""Ranges of queue offsets: which overlap, what lies between them, and how to cut them to size."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ariane.spark.offsets import Queue


class Span(NamedTuple):
    """Queue offsets [first, end)."""

    first: int
    end: int

    def __str__(self) -> str:
        return f"[{self.first}, {self.end})"


Spans = Mapping[Queue, Span]


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same offsets in as few spans as can be, by offset."""
    found: list[Span] = []
    for span in sorted(span for span in spans if span.first < span.end):
        if found and span.first <= found[-1].end:
            found[-1] = Span(found[-1].first, max(found[-1].end, span.end))
        else:
            found.append(span)
    return found


def gaps(spans: Iterable[Span]) -> list[Span]:
    """What lies between the first and the last offset and in no span."""
    found = merged(spans)
    return [Span(before.end, after.first) for before, after in itertools.pairwise(found)]


def overlaps(spans: Iterable[Span]) -> list[Span]:
    """What is in more than one span."""
    found: list[Span] = []
    reached = 0
    for span in sorted(span for span in spans if span.first < span.end):
        if span.first < reached:
            found.append(Span(span.first, min(span.end, reached)))
        reached = max(reached, span.end)
    return merged(found)


def common(left: Span, right: Span) -> Span:
    """What is in both; empty, with first == end, when nothing is."""
    first = max(left.first, right.first)
    return Span(first, max(first, min(left.end, right.end)))


def chunks(spans: Spans, size: int) -> Iterator[dict[Queue, Span]]:
    """The spans cut into pieces of at most `size` offsets together, from the front of every queue.

    Queues go forward side by side, each by its share of what is left, and a queue's offsets come
    in order.
    """
    left = {queue: span for queue, span in sorted(spans.items()) if span.first < span.end}
    while left:
        total = sum(span.end - span.first for span in left.values())
        chunk: dict[Queue, Span] = {}
        room = size
        for queue, span in list(left.items()):
            length = span.end - span.first
            share = min(length, room, max(1, length * size // total))
            if share == 0:
                continue
            room -= share
            chunk[queue] = Span(span.first, span.first + share)
            if share == length:
                del left[queue]
            else:
                left[queue] = Span(span.first + share, span.end)
        yield chunk
