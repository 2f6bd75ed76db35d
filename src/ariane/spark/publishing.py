"""The second phase of the sink: one attempt of each partition is made visible, on all brokers.

Each broker publishes its part of a plan, and the first plan that is decided for a batch is the one
that counts. With several brokers it must be the same plan on all, though a batch that is run again
may spread its rows differently. So every broker is first told of all that take part, each remembers
them, and the plan is decided on the first of them by name before the others hear of it. Whoever
runs the batch again asks all of them, and goes on with the plan that was decided, if one was.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from ariane.codes import RequestCode, ResponseCode
from ariane.errors import ClientError, RequestFailed
from ariane.protocol.bodies.staging import BatchPlan, BatchState, ChunkReference
from ariane.protocol.command import Command
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.staging import BatchHeader, BatchReply, PublishHeader
from ariane.spark.broker_talk import BrokerTalk

log = logging.getLogger("ariane.spark")

KEEP_HOURS: Final = 24 * 30  # for a stream that is not heard of
KEEP_JOB_HOURS: Final = 24  # a batch job has one batch


@dataclass(frozen=True, slots=True)
class StagedChunk:
    """A chunk that waits on a broker."""

    broker: str
    reference: ChunkReference


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of one query."""

    query: str
    number: int
    keep_hours: int = KEEP_HOURS


@dataclass(frozen=True, slots=True)
class _Known:
    """What a broker said of the batch."""

    state: BatchState
    brokers: frozenset[str]
    plan: BatchPlan | None


def plan_of(parts: Iterable[Sequence[StagedChunk]]) -> BatchPlan:
    """The plan that publishes the chunks of these tasks, which come in the order of partitions."""
    brokers: dict[str, list[ChunkReference]] = {}
    for part in parts:
        for chunk in part:
            brokers.setdefault(chunk.broker, []).append(chunk.reference)
    return BatchPlan(brokers)


def publish(talk: BrokerTalk, batch: Batch, plan: BatchPlan, timeout_s: float) -> None:
    """Publish the batch by this plan, or by the one decided before; returns when it is safe.

    Raises ClientError if that cannot be known; then the same call may be made again, at any time.
    """
    if plan.brokers:
        talk.run(_publish(talk, batch, plan, timeout_s))


def discard(talk: BrokerTalk, batch: Batch, plan: BatchPlan, timeout_s: float) -> None:
    """See to it that the batch is never published, if it is not too late for that."""
    if not plan.brokers:
        return

    async def ask() -> Command:
        header = BatchHeader(
            query_id=batch.query, batch_id=batch.number, keep_hours=batch.keep_hours
        )
        return await talk.ask(min(plan.brokers), RequestCode.DISCARD_BATCH, header)

    try:
        talk.run(talk.persist(ask, timeout_s))
    except RequestFailed as error:
        if error.code != ResponseCode.ILLEGAL_OPERATION:
            raise
        log.error("the write failed, but its rows are published or will be: %s", error)


async def _publish(talk: BrokerTalk, batch: Batch, plan: BatchPlan, timeout_s: float) -> None:
    known = await _enlist(talk, batch, set(plan.brokers), timeout_s)
    decided = next((found.plan for found in known.values() if found.plan is not None), None)
    is_published = any(found.state is BatchState.PUBLISHED for found in known.values())
    if decided is None and is_published:
        unsure = [name for name, found in known.items() if found.state is BatchState.UNKNOWN]
        if not unsure:
            return
        raise ClientError(
            f"batch {batch.number} of {batch.query} was published, but its plan is not kept any"
            f" more, and {', '.join(unsure)} may lack rows of it; compare the topics, and begin a"
            " new checkpoint"
        )
    first = min(known)
    answer = await _publish_on(talk, first, batch, decided or plan, timeout_s)
    if answer.body:
        decided = msgspec.json.decode(answer.body, type=BatchPlan)
    counts = decided or plan
    others = [name for name in counts.brokers if name != first]
    await asyncio.gather(*(_publish_on(talk, name, batch, counts, timeout_s) for name in others))


async def _enlist(
    talk: BrokerTalk, batch: Batch, names: set[str], timeout_s: float
) -> dict[str, _Known]:
    """Tell every broker that takes part of all of them, also of those that did so before."""
    known: dict[str, _Known] = {}
    while True:
        answers = await asyncio.gather(
            *(_enlist_on(talk, name, batch, names, timeout_s) for name in names)
        )
        known.update(zip(names, answers, strict=True))
        told = names.union(*(found.brokers for found in answers))
        if told == names:
            return known
        names = told


async def _enlist_on(
    talk: BrokerTalk, broker: str, batch: Batch, names: set[str], timeout_s: float
) -> _Known:
    header = BatchHeader(
        query_id=batch.query,
        batch_id=batch.number,
        brokers=",".join(sorted(names)),
        keep_hours=batch.keep_hours,
    )

    async def ask() -> Command:
        return await talk.ask(broker, RequestCode.PUBLISHED_BATCH, header)

    answer = await talk.persist(ask, timeout_s)
    reply = decode_header(BatchReply, answer.ext)
    return _Known(
        state=BatchState(reply.state),
        brokers=frozenset(name for name in reply.brokers.split(",") if name),
        plan=msgspec.json.decode(answer.body, type=BatchPlan) if answer.body else None,
    )


async def _publish_on(
    talk: BrokerTalk, broker: str, batch: Batch, plan: BatchPlan, timeout_s: float
) -> Command:
    header = PublishHeader(query_id=batch.query, batch_id=batch.number, keep_hours=batch.keep_hours)
    body = msgspec.json.encode(plan)

    async def ask() -> Command:
        return await talk.ask(broker, RequestCode.PUBLISH_BATCH, header, body)

    return await talk.persist(ask, timeout_s)
