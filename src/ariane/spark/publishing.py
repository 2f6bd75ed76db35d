"""The second phase of the sink: one attempt of each partition is made visible, on all brokers.

Each broker publishes its part of a plan, and the first plan that is decided for a batch is the one
that counts. With several brokers it must be the same plan on all, though a batch that is run again
may spread its rows differently. So all brokers that may get rows are told of each other and
remember it, and the plan is decided on the first of them by name before the others hear of it.
Whoever runs the batch again learns from any of them which one that is, and goes on with what was
decided there.
Others may be away, unless the plan has rows on them, or there is a new one to tell them of.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from ariane.codes import RequestCode, ResponseCode
from ariane.errors import ClientError, RequestFailed
from ariane.protocol.bodies.staging import BatchPlan, BatchState, ChunkReference
from ariane.protocol.command import Command
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.staging import BatchHeader, BatchReply, PublishHeader
from ariane.spark.broker_talk import BrokerTalk, may_pass
from ariane.spark.parts import Batch, StagedChunk

log = logging.getLogger("ariane.spark")


@dataclass(frozen=True, slots=True)
class _Known:
    """What a broker said of the batch."""

    state: BatchState
    brokers: frozenset[str]
    has_grown: bool
    plan: BatchPlan | None


def plan_of(parts: Iterable[Sequence[StagedChunk]]) -> BatchPlan:
    """The plan that publishes the chunks of these tasks, which come in the order of partitions."""
    brokers: dict[str, list[ChunkReference]] = {}
    for part in parts:
        for chunk in part:
            reference = ChunkReference(chunk.offset, chunk.row_count, chunk.crc32)
            brokers.setdefault(chunk.broker, []).append(reference)
    return BatchPlan(brokers)


def publish(
    talk: BrokerTalk, batch: Batch, plan: BatchPlan, brokers: Collection[str], timeout_s: float
) -> None:
    """Publish the batch by this plan, or by the one decided before; returns when it is safe.

    `brokers` are those that the batch might have had rows on. Raises ClientError if it cannot be
    known that all is published; then the same call may be made again, at any time.
    """
    if plan.brokers:
        talk.run(_publish(talk, batch, plan, {*brokers, *plan.brokers}, timeout_s))


def discard(
    talk: BrokerTalk, batch: Batch, plan: BatchPlan, brokers: Collection[str], timeout_s: float
) -> None:
    """See to it that the batch is never published, if it is not too late for that."""
    if not plan.brokers:
        return
    first = min({*brokers, *plan.brokers})

    async def ask() -> Command:
        header = BatchHeader(
            query_id=batch.query, batch_id=batch.number, keep_hours=batch.keep_hours
        )
        return await talk.ask(first, RequestCode.DISCARD_BATCH, header)

    try:
        talk.run(talk.persist(ask, timeout_s))
    except RequestFailed as error:
        if error.code != ResponseCode.ILLEGAL_OPERATION:
            raise
        log.error("the write failed, but its rows are published or will be: %s", error)


async def _publish(
    talk: BrokerTalk, batch: Batch, plan: BatchPlan, names: set[str], timeout_s: float
) -> None:
    known = await _enlist(talk, batch, names, timeout_s)
    first = min(names.union(*(found.brokers for found in known.values())))
    decided = next((found.plan for found in known.values() if found.plan is not None), None)
    if decided is None and known[first].state is BatchState.PUBLISHED:
        unsure = [name for name, found in known.items() if found.state is BatchState.UNKNOWN]
        if not unsure:
            return
        raise ClientError(
            f"batch {batch.number} of {batch.query} was published, but its plan is not kept any"
            f" more, and {', '.join(unsure)} may lack rows of it; compare the topics, and begin a"
            " new checkpoint"
        )
    answer = await _publish_on(talk, first, batch, decided or plan, timeout_s)
    counts = msgspec.json.decode(answer.body, type=BatchPlan) if answer.body else decided or plan
    others = [name for name in counts.brokers if name != first]
    await asyncio.gather(*(_publish_on(talk, name, batch, counts, timeout_s) for name in others))


async def _enlist(
    talk: BrokerTalk, batch: Batch, names: set[str], timeout_s: float
) -> dict[str, _Known]:
    """Tell all brokers of each other, also of those they heard of before; what they know."""
    has_grown = False
    patience_s: dict[str, float] = {}
    while True:
        known = await _tell(talk, batch, names, patience_s)
        has_grown = has_grown or any(found.has_grown for found in known.values())
        told = names.union(*(found.brokers for found in known.values()))
        away = names - known.keys()
        # The first may have decided; one that has not heard of all would not know whom to ask.
        needed = away if has_grown or not known else away & {min(told)}
        if told == names and not needed:
            return known
        patience_s.update(dict.fromkeys(needed, timeout_s))
        names = told


async def _tell(
    talk: BrokerTalk, batch: Batch, names: set[str], patience_s: Mapping[str, float]
) -> dict[str, _Known]:
    """Tell all brokers of all; one that does not answer, and need not, is left out."""

    async def tell(broker: str) -> _Known | None:
        try:
            return await _enlist_on(talk, broker, batch, names, patience_s.get(broker, 0.0))
        except ClientError as error:
            if broker in patience_s or not may_pass(error):
                raise
            return None

    answers = await asyncio.gather(*map(tell, names))
    return {name: found for name, found in zip(names, answers, strict=True) if found is not None}


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
        has_grown=reply.has_grown,
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
