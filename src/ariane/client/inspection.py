"""What a push consumer is doing, in the words of RocketMQ's tools."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
import traceback
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ariane.client.process_queue import ProcessQueue
from ariane.client.session import Session
from ariane.client.statistics import ConsumeStatistics
from ariane.protocol.bodies import MessageQueue, SubscriptionData
from ariane.protocol.bodies.consumers import HeldQueue, RunningInfo, TopicRates

CLIENT_VERSION: Final = "V5_3_3"


def running_info(
    session: Session,
    *,
    queues: Iterable[ProcessQueue],
    statistics: Mapping[str, ConsumeStatistics],
    subscriptions: list[SubscriptionData],
    is_orderly: bool,
    started_at_ms: int,
    consume_type: str = "CONSUME_PASSIVELY",
    with_stacks: bool = False,
) -> RunningInfo:
    """Everything about one consumer."""
    now_s, now_ms = session.clock.monotonic_s(), session.clock.wall_ms()
    return RunningInfo(
        properties={
            "PROP_CLIENT_VERSION": CLIENT_VERSION,
            "PROP_CONSUMEORDERLY": "true" if is_orderly else "false",
            "PROP_CONSUMER_START_TIMESTAMP": str(started_at_ms),
            "PROP_CONSUME_TYPE": consume_type,
            "PROP_NAMESERVER_ADDR": ";".join(session.name_servers),
            "PROP_THREADPOOL_CORE_SIZE": str(threading.active_count()),
        },
        queues=dict(
            sorted(
                (process.queue, _held(process, now_s=now_s, now_ms=now_ms)) for process in queues
            )
        ),
        rates={topic: _rates(counted, now_s) for topic, counted in sorted(statistics.items())},
        subscriptions=subscriptions,
        stacks=stacks() if with_stacks else None,
    )


def stacks() -> str:
    """Where every thread and every task of the running loop stands."""
    text = io.StringIO()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for number, frame in sys._current_frames().items():
        text.write(f"thread {names.get(number, number)}\n")
        traceback.print_stack(frame, file=text)
    for task in asyncio.all_tasks():
        text.write(f"task {task.get_name()}\n")
        awaited: Any = task.get_coro()
        while (at := getattr(awaited, "cr_frame", None)) is not None:
            code = at.f_code
            text.write(f'  File "{code.co_filename}", line {at.f_lineno}, {code.co_qualname}\n')
            awaited = awaited.cr_await
    return text.getvalue()


def offsets_of(queues: Iterable[ProcessQueue], topic: str) -> dict[MessageQueue, int]:
    """How far each queue of the topic has been consumed."""
    return {
        process.queue: process.commit_offset for process in queues if process.queue.topic == topic
    }


def _held(process: ProcessQueue, *, now_s: float, now_ms: int) -> HeldQueue:
    offsets = [message.queue_offset for message in process]
    return HeldQueue(
        message_count=len(offsets),
        min_offset=min(offsets, default=0),
        max_offset=max(offsets, default=0),
        mebibytes=process.byte_count >> 20,
        commit_offset=process.commit_offset,
        is_dropped=process.is_dropped,
        is_locked=process.is_locked,
        locked_at_ms=now_ms - round((now_s - process.locked_s) * 1000),
        pulled_at_ms=now_ms - round((now_s - process.pulled_s) * 1000),
        consumed_at_ms=now_ms - round((now_s - process.progressed_s) * 1000),
    )


def _rates(statistics: ConsumeStatistics, now_s: float) -> TopicRates:
    rates = statistics.rates(now_s=now_s)
    return TopicRates(
        pull_ms=rates.pull_ms,
        pulled_per_s=rates.pulled_per_s,
        consume_ms=rates.consume_ms,
        succeeded_per_s=rates.succeeded_per_s,
        failed_per_s=rates.failed_per_s,
        failed=rates.failed,
    )
