"""From staged chunks to messages: a slice of rows at a time, each behind the note of it.

A slice is one turn of the loop at most. Nothing else is written between a note and its rows, so
after a kill the records behind the last note tell how many rows of it are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from typing import Final

from ariane.broker import placing
from ariane.broker.handlers.send import check_open
from ariane.broker.staging.chunks import Chunk, ChunkGone, find
from ariane.broker.staging.journal import Journal
from ariane.broker.staging.ledger import Publication
from ariane.broker.staging.notes import Intent
from ariane.broker.state import BrokerState
from ariane.codes import ResponseCode
from ariane.errors import InvalidParameter, RequestRejected
from ariane.protocol.bodies import TopicConfig
from ariane.protocol.bodies.staging import ChunkReference
from ariane.store import chunks
from ariane.store.messages import NewMessage, StagedRows

ROWS_AT_ONCE: Final = 2048
BYTES_AT_ONCE: Final = 512 << 10
LATE_ROWS_AT_ONCE: Final = 64  # these go one by one
CHUNKS_CHECKED_AT_ONCE: Final = 32


def check_plan(
    state: BrokerState, references: Sequence[ChunkReference], query: str, batch: int
) -> Iterator[None]:
    """Look at every chunk a plan names, some at a time; raises RequestRejected at the first fault.

    The chunks of a partition must be those of one attempt, all of them, in order.
    """
    attempts: dict[int, tuple[int, int]] = {}  # partition -> attempt, its next chunk
    for number, reference in enumerate(references):
        chunk = find(state.store, reference, query, batch)
        attempt, sequence = attempts.get(chunk.partition, (chunk.attempt, 0))
        if chunk.attempt != attempt:
            raise InvalidParameter(
                f"the plan has chunks of attempts {attempt} and {chunk.attempt} for partition"
                f" {chunk.partition}; exactly one attempt may be published"
            )
        if chunk.sequence != sequence:
            raise InvalidParameter(
                f"the plan has chunk {chunk.sequence} of partition {chunk.partition} where chunk"
                f" {sequence} belongs"
            )
        attempts[chunk.partition] = (attempt, sequence + 1)
        target_of(state, chunk)
        if number % CHUNKS_CHECKED_AT_ONCE == CHUNKS_CHECKED_AT_ONCE - 1:
            yield


def target_of(state: BrokerState, chunk: Chunk) -> TopicConfig:
    """The topic of a chunk, as it is now; RequestRejected if its queue cannot be written to."""
    topic = state.topics.get(chunk.topic)
    if topic is None:
        raise RequestRejected(
            f"topic[{chunk.topic}] does not exist any more; create it and publish again",
            ResponseCode.TOPIC_NOT_EXIST,
        )
    check_open(topic, state)
    count = max(topic.write_queue_count, topic.read_queue_count)
    if not 0 <= chunk.queue_id < count:
        raise InvalidParameter(
            f"queueId[{chunk.queue_id}] is illegal, topic[{topic.name}] has {count} queues now"
        )
    return topic


class Publisher:
    """Carries out publications."""

    def __init__(self, state: BrokerState, journal: Journal) -> None:
        self._state = state
        self._journal = journal

    def steps(self, publication: Publication) -> Iterator[None]:
        """Publish what is left, a slice for each step; raises what stands in the way."""
        assert publication.chunks is not None
        while not publication.is_complete:
            reference = publication.chunks[publication.chunk]
            chunk = find(self._state.store, reference, publication.query, publication.batch)
            number = publication.chunk
            while publication.chunk == number:
                target_of(self._state, chunk)
                try:
                    if chunk.late_count:
                        self._place_late(publication, chunk)
                    else:
                        self._place(publication, chunk)
                except LookupError as error:
                    raise ChunkGone(
                        f"chunk {reference.offset} cannot be read any more: {error}"
                    ) from error
                yield

    def recover(self, publication: Publication) -> None:
        """After a start: find out how many rows of the last intent are there."""
        intent = publication.intent
        if intent is None or publication.is_complete:
            return
        assert publication.chunks is not None
        reference = publication.chunks[intent.chunk]
        try:
            chunk = find(self._state.store, reference, publication.query, publication.batch)
            rows, position = chunks.rows_behind(
                self._state.store.log,
                publication.intent_end,
                chunk.log_offset,
                intent.position,
                intent.row_count,
            )
        except (ChunkGone, LookupError):
            return  # it will be met again, and told, when publishing goes on
        publication.stand_at(intent.chunk, intent.row + rows, position)

    def _place(self, publication: Publication, chunk: Chunk) -> None:
        """A slice of rows that go to their queue as they are."""
        state = self._state
        notes: list[Intent] = []

        def note_of(row_count: int) -> NewMessage:
            notes.append(_intent(publication, row_count))
            return self._journal.message_of(notes[0])

        started_s = state.clock.monotonic_s()
        placed = state.store.append_rows(
            StagedRows(
                topic=chunk.topic,
                queue_id=chunk.queue_id,
                chunk_offset=chunk.log_offset,
                position=publication.position,
                count_max=min(ROWS_AT_ONCE, chunk.row_count - publication.row),
                bytes_max=BYTES_AT_ONCE,
            ),
            note_of,
        )
        state.flow.append_took(state.clock.monotonic_s() - started_s)
        row = publication.row + placed.row_count
        self._journal.written(notes[0], placed.note)
        publication.stand_at(publication.chunk, row, placed.position)
        state.stats.put_to(chunk.topic).add(placed.row_count, placed.size)
        state.arrived(chunk.topic, chunk.queue_id)

    def _place_late(self, publication: Publication, chunk: Chunk) -> None:
        """A few rows of a chunk in which some ask for a time."""
        store = self._state.store
        born_ms, host = chunks.birth(store.log, chunk.log_offset)
        count = min(LATE_ROWS_AT_ONCE, chunk.row_count - publication.row)
        self._journal.write(_intent(publication, count))
        for _ in range(count):
            flag, body, properties, position = chunks.row(
                store.log, chunk.log_offset, publication.position
            )
            message = NewMessage(
                topic=chunk.topic,
                queue_id=chunk.queue_id,
                body=body,
                properties=properties,
                born_host=(str(ip_address(host[:-4])), int.from_bytes(host[-4:], "big")),
                born_at_ms=born_ms,
                flag=flag,
            )
            placing.put(self._state, message)
            publication.stand_at(publication.chunk, publication.row + 1, position)


def _intent(publication: Publication, row_count: int) -> Intent:
    return Intent(
        publication.decision, publication.chunk, publication.row, publication.position, row_count
    )
