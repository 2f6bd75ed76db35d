"""`ariane tail`: a topic's messages as they arrive."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import stat
import sys
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec
import typer

from ariane.cli.options import DEFAULT_NAMESRV, NamesrvOption, TopicArgument
from ariane.cli.output import Output, OutputOption, say, warn
from ariane.cli.records import line_of, view_of
from ariane.client import Client, MessageQueue, PullConsumer, StoredMessage
from ariane.clock import SystemClock
from ariane.errors import ClientError

WAIT_S: Final = 20.0
RETRY_S: Final = 1.0
LOOK_FOR_QUEUES_S: Final = 10.0
UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("tail")(tail)


def tail(
    topic: TopicArgument,
    *,
    tags: Annotated[str, typer.Option(help='Only these tags, as in "paid || new".')] = "*",
    from_start: Annotated[bool, typer.Option(help="Begin with the oldest message.")] = False,
    since: Annotated[str, typer.Option(help="Begin so long ago, as in 10m, 2h, 3d.")] = "",
    count: Annotated[int, typer.Option(min=0, help="Stop after so many; 0 never stops.")] = 0,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print messages as they arrive, until Ctrl-C."""
    start_ms = 0 if from_start else _moment_of(since) if since else None
    follower = _Follower(topic, tags=tags, start_ms=start_ms, count=count, output=output)
    try:
        asyncio.run(follower.run(namesrv))
    except KeyboardInterrupt:
        return


class _Follower:
    """One waiting pull per queue, and one look-out for queues that appear later."""

    def __init__(
        self, topic: str, *, tags: str, start_ms: int | None, count: int, output: Output
    ) -> None:
        self._topic = topic
        self._tags = tags
        self._start_ms = start_ms
        self._remaining = count or None
        self._output = output
        self._is_done = asyncio.Event()
        self._is_unread = False
        self._failing: set[str] = set()  # brokers that do not answer now

    async def run(self, namesrv: str) -> None:
        self._watch_reader()
        async with Client(namesrv) as client:
            tasks = [asyncio.create_task(self._is_done.wait())]
            try:
                await self._watch(client.pull_consumer(), tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        if self._is_unread:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    def _watch_reader(self) -> None:
        """End when whoever reads us through a pipe has gone, not only with the next message."""
        if sys.stdout is None:
            return
        try:
            output = sys.stdout.fileno()
        except OSError:  # not a file at all
            return
        if not stat.S_ISFIFO(os.fstat(output).st_mode):
            return
        loop = asyncio.get_running_loop()

        def reader_gone() -> None:
            loop.remove_reader(output)
            self._is_unread = True
            self._is_done.set()

        loop.add_reader(output, reader_gone)  # nothing is ever to be read here: it is an error

    async def _watch(self, consumer: PullConsumer, tasks: list[asyncio.Task[Any]]) -> None:
        followed: set[MessageQueue] = set()
        while not self._is_done.is_set():
            is_new = bool(followed)  # of a queue that appears while we watch, all is new
            for queue in await consumer.queues(self._topic):
                if queue not in followed:
                    await self._seek(consumer, queue, is_new=is_new)
                    followed.add(queue)
                    tasks.append(asyncio.create_task(self._follow(consumer, queue)))
            ended, _ = await asyncio.wait(
                tasks, timeout=LOOK_FOR_QUEUES_S, return_when=asyncio.FIRST_COMPLETED
            )
            for task in ended:
                task.result()  # a reader only ends by a fault

    async def _seek(self, consumer: PullConsumer, queue: MessageQueue, *, is_new: bool) -> None:
        if is_new or self._start_ms == 0:
            await consumer.seek_to_start(queue)
        elif self._start_ms is None:
            await consumer.seek_to_end(queue)
        else:
            moment = datetime.fromtimestamp(self._start_ms / 1000, UTC)
            await consumer.seek_to_time(queue, moment)

    async def _follow(self, consumer: PullConsumer, queue: MessageQueue) -> None:
        while not self._is_done.is_set():
            try:
                pulled = await consumer.pull(queue, tags=self._tags, wait=WAIT_S)
            except ClientError as error:
                if queue.broker_name not in self._failing:  # said once, not for each of its queues
                    self._failing.add(queue.broker_name)
                    warn(f"{queue.broker_name}: {error}; trying again until it answers")
                await _within(self._is_done.wait(), RETRY_S)
                continue
            self._failing.discard(queue.broker_name)
            for message in pulled.messages:
                self._print(message)

    def _print(self, message: StoredMessage) -> None:
        if self._is_done.is_set():
            return
        if self._output is Output.JSON:
            say(msgspec.json.encode(view_of(message)).decode())
        else:
            say(line_of(message))
        if self._remaining is not None:
            self._remaining -= 1
            if self._remaining == 0:
                self._is_done.set()


async def _within(work: Awaitable[object], seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await work


def _moment_of(text: str) -> int:
    found = re.fullmatch(r"(\d+)([smhd])", text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a span of time; write 30s, 10m, 2h or 3d")
    return SystemClock().wall_ms() - int(found[1]) * UNITS_MS[found[2]]
