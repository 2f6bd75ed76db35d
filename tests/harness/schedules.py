"""Random schedules of what callers do to a client: send, consume, cancel, time out, break, close.

Each is drawn from a seed and run against a broker in this process. Afterwards all clients are
closed, and then must hold:

- what was acknowledged to a sender is published;
- what is published and was not consumed comes to whoever consumes for the group next;
- no task, no thread and no socket is left.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import threading
import traceback
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from random import Random

import ariane
import ariane.sync
from ariane import Client, PolledMessage, ReceivedMessage, RetryLater, Start
from ariane.errors import ArianeError, ClientError
from ariane.testing import EmbeddedBroker
from ariane.testing.faults import How

ACTORS = 6
STEPS = 6
PAUSE_S = 0.004  # at most, between steps
SCHEDULE_S = 15.0  # that nothing in a schedule takes, unless it hangs
RECOVERY_S = 30.0  # until everything has come again, at most
TOGETHER = 50  # schedules that share a broker
MINUTE_S = 60.0  # of the broker's time: the time between two questions about a transaction
LATER_S = 7_300.0  # of the broker's time: longer than any retry waits

Step = Callable[[], Awaitable[None]]


class PlannedError(Exception):
    """What handlers and blocks fail with on purpose."""


class Schedule:
    """One run."""

    def __init__(self, seed: int, broker: EmbeddedBroker) -> None:
        self.random = Random(seed)
        self.broker = broker
        self.topic = f"topic-{seed}-{broker.requests(310)}"
        self.group = self.topic.replace("topic", "group")
        self.sent = 0
        self.acknowledged: set[bytes] = set()  # to senders
        self.committed: set[bytes] = set()  # by transactions
        self.consumed: dict[str, set[bytes]] = {
            "loop": set(),
            "poll": set(),
            "pop": set(),
            "lent": set(),
        }
        self.clients: list[Client] = []
        self.closed: list[Client] = []  # or were about to be, when their closer was cancelled
        self.threads: list[threading.Thread] = []

    async def run(self) -> None:
        """Do what the seed says, then see that nothing is lost and nothing is left."""
        sockets = open_sockets()
        threads = set(threading.enumerate())
        async with self._client() as admin:
            await admin.admin.create_topic(self.topic, write_queue_count=2)
        self.clients = [self._client() for _ in range(self.random.choice((1, 1, 2)))]
        for client in self.clients:
            await client.open()
        async with ending(SCHEDULE_S):
            await self._act()
        async with ending(SCHEDULE_S):
            for client in (*self.clients, *self.closed):
                with contextlib.suppress(ArianeError):
                    await client.close()
        for thread in self.threads:
            await until(lambda thread=thread: not thread.is_alive(), "a blocking client")  # type: ignore[misc]
        self.broker.heal()
        await until(lambda: len(asyncio.all_tasks()) == 1, tasks_left)
        await until(lambda: set(threading.enumerate()) <= threads, "threads to end")
        await until(lambda: open_sockets() <= sockets, "sockets to close")
        lost = self.acknowledged - self._published()
        assert not lost, f"acknowledged and not published: {sorted(lost)}"
        await self._recover()

    # What is done.

    async def _act(self) -> None:
        actors = [asyncio.create_task(self._actor()) for _ in range(ACTORS)]
        while not all(actor.done() for actor in actors):
            await self._pause()
            if self.random.random() < 0.15:
                self.random.choice(actors).cancel()
            if self.random.random() < 0.03:
                how: How = self.random.choice(("refuse", "lose", "disconnect"))
                self.broker.fail("send", how=how, topic=self.topic)
        for outcome in await asyncio.gather(*actors, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(
                outcome, asyncio.CancelledError
            ):
                raise outcome

    async def _actor(self) -> None:
        steps: list[Step] = [
            self._send, self._send, self._send, self._submit, self._batch, self._transaction,
            self._loop, self._broken_loop, self._impatient_loop, self._handle, self._poll,
            self._lend, self._handle_lent, self._close, self._block,
        ]  # fmt: skip
        weights = [4, 4, 4, 4, 2, 2, 3, 3, 3, 2, 2, 2, 2, 1, 1]
        for _ in range(STEPS):
            (step,) = self.random.choices(steps, weights)
            with contextlib.suppress(TimeoutError, ClientError, PlannedError, StopAsyncIteration):
                if self.random.random() < 0.3:
                    async with asyncio.timeout(self.random.uniform(0, 0.02)):
                        await step()
                else:
                    await step()
            await self._pause()

    async def _send(self) -> None:
        body = self._body()
        await self._some().send(self.topic, body)
        self.acknowledged.add(body)

    async def _submit(self) -> None:
        body = self._body()
        future = await self._some().submit(self.topic, body)
        future.add_done_callback(lambda done: self._submitted(done, body))
        if self.random.random() < 0.2:
            future.cancel()

    def _submitted(self, future: asyncio.Future[ariane.SendReceipt], body: bytes) -> None:
        if not future.cancelled() and future.exception() is None:
            self.acknowledged.add(body)

    async def _batch(self) -> None:
        bodies = [self._body() for _ in range(3)]
        await self._some().send_batch([ariane.Message(self.topic, body) for body in bodies])
        self.acknowledged.update(bodies)

    async def _transaction(self) -> None:
        body = self._body()
        async with self._some().transaction(self.topic, body, group=self.group):
            await self._maybe_fail()
            self.committed.add(body)  # said at the block's end, or the checker will say so

    async def _loop(self) -> None:
        async with self._subscribe() as messages:
            for _ in range(self.random.randrange(4)):
                async with asyncio.timeout(0.05):
                    message = await anext(messages)
                await self._consume(message)

    async def _broken_loop(self) -> None:
        async with asyncio.timeout(0.1):
            async for message in self._subscribe():
                await self._consume(message)
                if self.random.random() < 0.5:
                    break

    async def _impatient_loop(self) -> None:
        messages = self._subscribe()
        for _ in range(3):
            with contextlib.suppress(TimeoutError):
                message = await asyncio.wait_for(anext(messages), self.random.uniform(0, 0.01))
                await self._consume(message)
        await messages.close()

    async def _handle(self) -> None:
        async def handle(message: ReceivedMessage) -> None:
            try:
                await self._maybe_fail()
            except PlannedError:
                raise RetryLater(1) from None  # which is not logged
            self.consumed["loop"].add(message.body)

        consumer = self._some().push_consumer(
            self.group, handle, start=Start.FIRST, concurrency=3, drain=1
        )
        consumer.subscribe(self.topic)
        async with consumer:
            await asyncio.sleep(self.random.uniform(0, 0.05))

    async def _consume(self, message: ReceivedMessage) -> None:
        how = self.random.randrange(4)
        if how == 0:
            return  # never settled
        with contextlib.suppress(PlannedError, TimeoutError):
            async with asyncio.timeout(0.003 if how == 1 else None), message:
                await self._maybe_fail()
                self.consumed["loop"].add(message.body)

    async def _poll(self) -> None:
        consumer = self._some().lite_pull_consumer(f"{self.group}-poll", start=Start.FIRST)
        consumer.subscribe(self.topic)
        polled: list[PolledMessage] = []
        async with consumer:
            for _ in range(3):
                # Whoever polls again is done with what he polled before.
                self.consumed["poll"].update(message.body for message in polled)
                polled = []
                polled = await consumer.poll(0.02, count_max=5)
                await self._maybe_fail()
            self.consumed["poll"].update(message.body for message in polled)

    async def _lend(self) -> None:
        consumer = self._some().simple_consumer(f"{self.group}-pop", start=Start.FIRST)
        consumer.subscribe(self.topic)
        async with consumer:
            for message in await consumer.receive(5, wait=0.02):
                async with message:
                    await self._maybe_fail()
                    self.consumed["pop"].add(message.body)  # said at the block's end, or not

    async def _handle_lent(self) -> None:
        async def handle(batch: list[ReceivedMessage]) -> None:
            try:
                await self._maybe_fail()
            except PlannedError:
                raise RetryLater(1) from None
            self.consumed["lent"].update(message.body for message in batch)

        consumer = self._some().pop_consumer(
            f"{self.group}-lent", handle, batch=3, start=Start.FIRST, concurrency=2, drain=1
        )
        consumer.subscribe(self.topic)
        async with consumer:
            await asyncio.sleep(self.random.uniform(0, 0.05))
        assert not consumer.held_count, "a consumer that has closed holds messages"

    async def _close(self) -> None:
        place = self.random.randrange(len(self.clients))
        client = self.clients[place]
        self.closed.append(client)
        self.clients[place] = replacement = self._client()
        await replacement.open()
        await asyncio.gather(client.close(), client.close())

    async def _block(self) -> None:
        """A blocking client on a thread of its own does a little of everything."""
        random = Random(self.random.random())
        bodies = [self._body() for _ in range(6)]
        thread = threading.Thread(target=lambda: self._on_thread(random, bodies))
        self.threads.append(thread)
        thread.start()

    def _on_thread(self, random: Random, bodies: list[bytes]) -> None:
        with (
            contextlib.suppress(ClientError),
            ariane.sync.Client(self.broker.name_server) as client,
        ):
            futures = {body: client.submit(self.topic, body) for body in bodies[:3]}
            for body in bodies[3:]:
                client.send(self.topic, body)
                self.acknowledged.add(body)
            if random.random() < 0.5:
                consumer = client.lite_pull_consumer(f"{self.group}-poll", start=Start.FIRST)
                consumer.subscribe(self.topic)
                with consumer:
                    pass
            if random.random() < 0.5:
                client.close()
            for body, future in futures.items():
                future.result(10)
                self.acknowledged.add(body)

    # Afterwards.

    async def _recover(self) -> None:
        """Consume what is left, by every way; all that was not consumed must come."""
        async with self._client() as client:
            client.checker(self.group)(self._was_committed)
            await until(self._is_checker_known, "the broker to know the checker")
            with self._time_flying(MINUTE_S):  # an hour at a time would use up its questions
                await until(lambda: self.committed <= self._published(), "transactions to commit")
            with self._time_flying(LATER_S):
                published = self._published()
                left = {way: published - done for way, done in self.consumed.items()}
                try:
                    async with asyncio.timeout(RECOVERY_S):
                        await asyncio.gather(
                            self._loop_over(client, left["loop"]),
                            self._poll_all(client, left["poll"]),
                            self._lend_all(client, left["pop"]),
                            self._handle_all(client, left["lent"]),
                        )
                except TimeoutError:
                    print_tasks()
                    raise AssertionError(f"never came again: {left}") from None

    async def _loop_over(self, client: Client, left: set[bytes]) -> None:
        async with client.subscribe(self.topic, group=self.group, start=Start.FIRST) as messages:
            while left:
                async with await anext(messages) as message:
                    left.discard(message.body)

    async def _poll_all(self, client: Client, left: set[bytes]) -> None:
        consumer = client.lite_pull_consumer(f"{self.group}-poll", start=Start.FIRST)
        consumer.subscribe(self.topic)
        async with consumer:
            while left:
                left -= {message.body for message in await consumer.poll(0.1)}

    async def _lend_all(self, client: Client, left: set[bytes]) -> None:
        consumer = client.simple_consumer(f"{self.group}-pop", start=Start.FIRST)
        consumer.subscribe(self.topic)
        async with consumer:
            while left:
                messages = await consumer.receive(wait=0.1)
                await consumer.ack(messages)
                left -= {message.body for message in messages}

    async def _handle_all(self, client: Client, left: set[bytes]) -> None:
        all_came = asyncio.Event()

        async def handle(message: ReceivedMessage) -> None:
            left.discard(message.body)
            if not left:
                all_came.set()

        if not left:
            return
        consumer = client.pop_consumer(f"{self.group}-lent", handle, start=Start.FIRST)
        consumer.subscribe(self.topic)
        async with consumer:
            await all_came.wait()

    @contextlib.contextmanager
    def _time_flying(self, step_s: float) -> Iterator[None]:
        """Let the broker's time pass, so that what waits for it need not be waited for."""
        stopped = threading.Event()

        def fly() -> None:
            while not stopped.wait(0.05):
                self.broker.advance(step_s)

        thread = threading.Thread(target=fly)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()

    # Small things.

    async def _was_committed(self, message: ariane.StoredMessage) -> bool:
        return message.body in self.committed

    def _is_checker_known(self) -> bool:
        return bool(
            self.broker.call(lambda: self.broker.broker.state.clients.producers.get(self.group))
        )

    def _published(self) -> set[bytes]:
        return {message.body for message in self.broker.published(self.topic)}

    def _client(self) -> Client:
        linger = self.random.choice((None, None, 0.001))
        client = Client(self.broker.name_server, timeout=2, linger=linger)
        client.checked_elsewhere(self.group)
        return client

    def _some(self) -> Client:
        return self.random.choice(self.clients)

    def _subscribe(self) -> ariane.Subscription:
        return self._some().subscribe(
            self.topic, group=self.group, start=Start.FIRST, concurrency=self.random.choice((2, 9))
        )

    def _body(self) -> bytes:
        self.sent += 1
        return b"%d" % self.sent

    async def _pause(self) -> None:
        await asyncio.sleep(self.random.uniform(0, PAUSE_S))

    async def _maybe_fail(self) -> None:
        await self._pause()
        if self.random.random() < 0.2:
            raise PlannedError


@contextlib.asynccontextmanager
async def ending(within_s: float) -> AsyncIterator[None]:
    """Tell where everybody stands if it does not end in time."""
    stuck = asyncio.get_running_loop().call_later(within_s, print_tasks)
    try:
        async with asyncio.timeout(within_s + 1):
            yield
    finally:
        stuck.cancel()


def print_tasks() -> None:
    """What every task waits for."""
    for task in asyncio.all_tasks():
        task.print_stack()


async def until(condition: Callable[[], bool], what: str | Callable[[], str]) -> None:
    """Wait until it holds."""
    try:
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110 - what it waits for has no event
                await asyncio.sleep(0.001)
    except TimeoutError:
        said = what if isinstance(what, str) else what()
        raise AssertionError(f"still waiting for {said}") from None


def tasks_left() -> str:
    """The tasks that should have ended."""
    return "\n".join(map(str, asyncio.all_tasks() - {asyncio.current_task()}))


def open_sockets() -> int:
    """How many sockets this process has open."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            count += str(descriptor.readlink()).startswith("socket:")
    return count


def run_schedule(seed: int, broker: EmbeddedBroker) -> None:
    """Run one schedule on a loop of its own; what fails says its seed."""
    try:
        asyncio.run(Schedule(seed, broker).run())
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise


def main() -> None:
    """Run many schedules, one after the other; tell the seeds of those that fail."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--schedules", type=int, default=1_000)
    parser.add_argument("--first", type=int, default=0, help="the seed to begin with")
    asked = parser.parse_args()
    warnings.simplefilter("ignore", ResourceWarning)  # loops are broken on purpose
    seeds = range(asked.first, asked.first + asked.schedules)
    failed = []
    for begin in range(0, len(seeds), TOGETHER):
        with EmbeddedBroker() as broker:
            for seed in seeds[begin : begin + TOGETHER]:
                try:
                    run_schedule(seed, broker)
                except Exception:
                    traceback.print_exc()
                    failed.append(seed)
        done = min(begin + TOGETHER, len(seeds))
        print(f"schedules: {done} run, failed seeds: {failed or 'none'}", flush=True)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
