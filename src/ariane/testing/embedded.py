"""A name server and a broker in this process, on a thread of their own, with a clock that stands
still until a test turns it.

They are the real ones, on a disk in memory. The broker's delays, retries, timers, leases and
expiries wait for `advance`. Clients live in real time; those made by `client` have their clocks
turned too. The one thing `advance` spares clients is being taken for dead: whoever is connected
counts as heard from, however far time jumps.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from datetime import UTC, datetime
from functools import cached_property
from random import Random  # noqa: TID251 - seeded, so that runs are alike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack

from ariane.broker.broker import Broker
from ariane.client.times import Duration, renamed, seconds_of
from ariane.clock import ManualClock, SystemClock, Timers
from ariane.config import (
    BrokerConfig,
    NameServerConfig,
    StoreConfig,
    config_of,
)
from ariane.disk import CrashMode, SimulatedDisk
from ariane.nameserver.server import NameServer
from ariane.protocol.message import StoredMessage, decode_records
from ariane.remoting.connection import ConnectionLimits
from ariane.remoting.loop_timers import drive
from ariane.testing.faults import DEFAULT_CODE, DEFAULT_REMARK, Fault, FaultSwitches, How
from ariane.testing.settings import settings_of
from ariane.testing.turning import TurnedClients, TurnedClock
from ariane.testing.waiting import wait_until

if TYPE_CHECKING:
    import ariane
    from ariane import sync
    from ariane.client.settings import SendOptions
    from ariane.testing.awaiting import AwaitedBroker

T = TypeVar("T")

HOST: Final = "127.0.0.1"
NEVER_MS: Final = 1 << 60
PATIENT: Final = ConnectionLimits(idle_s=float("inf"), frame_s=float("inf"))
STEPS_MAX: Final = 40  # in which a jump of the clock is made
STEP_MIN_S: Final = 0.125
TURNS: Final = 8  # of the loop after a step: enough for a request to the name server and its answer
FREQUENT_S: Final = 1.0  # what looks at least this often has looked when `advance` returns
READ_COUNT: Final = 1000


class EmbeddedBroker:
    """A broker with its name server, from `start` to `stop`; settings by RocketMQ's keys.

    with EmbeddedBroker(transactionCheckInterval=10_000) as broker:
        client = ariane.sync.Client(broker.name_server)
    """

    def __init__(self, **settings: object) -> None:
        self._settings = settings_of(settings)
        self._clock = ManualClock(wall_ms=SystemClock().wall_ms())
        self._timers = Timers(self._clock)
        self._faults = FaultSwitches()
        self._disk = SimulatedDisk(now_s=lambda: self._clock.wall_ms() / 1000)
        self._random = Random(0)
        self._turned = TurnedClients()
        self._broker: Broker | None = None
        self._name_server: NameServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    # Its life.

    def start(self) -> Self:
        """Serve; returns when clients can connect and the name server knows the broker."""
        ready: Future[None] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(ready)), name="ariane-testing", daemon=True
        )
        self._thread.start()
        ready.result()
        return self

    def stop(self) -> None:
        """Serve no more; nothing is left behind. May be called again."""
        thread, self._thread = self._thread, None
        if thread is not None:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._stopped.set)
            thread.join()

    def restart(self, *, kill: bool = False) -> None:
        """Stop the broker, cleanly or as by kill -9, and start it again on the same port."""
        self._run(self._restart(kill=kill))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # Where it is.

    @property
    def name_server(self) -> str:
        """The name server's address, for clients."""
        assert self._name_server is not None, "the broker has not been started"
        return f"{HOST}:{self._name_server.port}"

    @property
    def address(self) -> str:
        """The broker's own address."""
        return f"{HOST}:{self.broker.port}"

    @property
    def broker(self) -> Broker:
        """The broker itself; it belongs to its own thread, so look at it by `call` alone."""
        assert self._broker is not None, "the broker has not been started"
        return self._broker

    # Who uses it.

    @cached_property
    def aio(self) -> AwaitedBroker:
        """The same broker, for tests that await."""
        from ariane.testing.awaiting import AwaitedBroker  # noqa: PLC0415 - which wraps this class

        return AwaitedBroker(self)

    def client(self, **options: Unpack[SendOptions]) -> ariane.Client:
        """A client whose time `advance` turns, for an `async with` block."""
        from ariane.client.client import Client  # noqa: PLC0415 - only its users pay for it

        clock = TurnedClock()
        return self._turned.added(Client(self.name_server, clock=clock, **options), clock)

    def blocking_client(self, **options: Unpack[SendOptions]) -> sync.Client:
        """A blocking client whose time `advance` turns, for a `with` block."""
        from ariane.client.sync import Client  # noqa: PLC0415 - only its users pay for it

        clock = TurnedClock()
        return self._turned.added(Client(self.name_server, clock=clock, **options), clock)

    # Time.

    @property
    def now(self) -> datetime:
        """The broker's time; it began with the true time and has stood still but for `advance`."""
        return datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)

    def advance(self, duration: Duration) -> None:
        """Let time pass in the broker. What fell due on the way has been done when it returns.

        What clients do in answer takes real time, so wait for it before time goes on.
        """
        self._turned.check()
        seconds = seconds_of(duration)
        if seconds < 0:
            raise ValueError(f"time goes forward only, so {seconds} s are not possible")
        self._run(self._advance(seconds))

    # What happened.

    def published(self, topic: str) -> list[StoredMessage]:
        """Every message consumers of the topic can see, in the order it was stored."""
        return self.call(lambda: self._published(topic))

    @renamed(within_s="within")
    def wait_for(self, topic: str, count: int, *, within: Duration = 5.0) -> list[StoredMessage]:
        """What is published in the topic, once there are at least `count` messages.

        It blocks; an async test calls `await broker.aio.wait_for(topic, count)`.
        """
        within_s = seconds_of(within)
        wait_until(lambda: len(self.published(topic)), count, within_s, f"messages in {topic}")
        return self.published(topic)

    def requests(self, request: str | int) -> int:
        """How many requests of a kind there were so far; kinds are those of `fail`."""
        return self.call(lambda: self._faults.handled(request))

    @renamed(within_s="within")
    def wait_for_requests(self, request: str | int, count: int, *, within: Duration = 5.0) -> None:
        """Return once there were at least so many requests of a kind; it blocks as `wait_for`."""
        within_s = seconds_of(within)
        wait_until(lambda: self.requests(request), count, within_s, f"requests of {request!r}")

    # What is to go wrong.

    def fail(
        self,
        request: str | int,
        *,
        times: int | None = 1,
        code: int = DEFAULT_CODE,
        how: How = "refuse",
        topic: str | None = None,
        remark: str = DEFAULT_REMARK,
    ) -> Fault:
        """Let the next requests of a kind go wrong; `times=None` means all until `cancel`.

        The kind is "send", "pull" or another of `ariane.testing.faults.KINDS`, a name of
        `RequestCode`, or a number. How: "refuse" answers with `code`; "ignore" does and answers
        nothing; "lose" does it but answers nothing; "disconnect" closes the connection.
        """

        def order() -> Fault:
            return self._faults.order(
                request, times=times, how=how, code=code, remark=remark, topic=topic
            )

        return self.call(order)

    def heal(self) -> None:
        """Take back every `fail`."""
        self.call(self._faults.heal)

    def call(self, work: Callable[[], T]) -> T:
        """Run something on the broker's thread, between two requests, and wait for its result."""

        async def run() -> T:
            return work()

        return self._run(run())

    # Below: how it is done. All of it runs on the broker's thread, but for `_run`.

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._thread is None or self._loop is None:
            work.close()
            raise RuntimeError("the broker is not running; start it, or use it in a `with` block")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _serve(self, ready: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        driver = drive(self._timers, self._loop)
        try:
            await self._start()
        except BaseException as error:
            ready.set_exception(error)
        else:
            ready.set_result(None)
            await self._stopped.wait()
        finally:
            for server in (self._broker, self._name_server):
                if server is not None:
                    await server.stop()
            driver.stop()

    async def _start(self) -> None:
        name_server = NameServer(
            NameServerConfig(port=0, broker_expiry_ms=NEVER_MS),
            disk=SimulatedDisk(),
            clock=self._clock,
            timers=self._timers,
            limits=PATIENT,
            intercept=self._faults.around,
        )
        await name_server.start()
        self._name_server = name_server
        await self._start_broker(port=0)

    async def _start_broker(self, *, port: int) -> None:
        own = {"bindAddress": HOST, "listenPort": str(port), "namesrvAddr": self.name_server}
        broker = Broker(
            config_of(BrokerConfig, self._settings | own),
            config_of(StoreConfig, self._settings),
            clock=self._clock,
            disk=self._disk,
            random=self._random,
            timers=self._timers,
            limits=PATIENT,
            intercept=self._faults.around,
            has_threads=False,  # what has been begun is done when time goes on
        )
        await broker.start()
        self._broker = broker

    async def _restart(self, *, kill: bool) -> None:
        before = self.broker
        image = self._disk.crash_image(self._random, CrashMode.KILL)
        self._broker = None
        port = before.port
        await before.stop()  # after a kill this writes to a disk that nobody looks at any more
        if kill:
            self._disk = image
        await self._start_broker(port=port)

    async def _advance(self, seconds: float) -> None:
        """Jump in steps, so that what is due early in a long time is done with early times."""
        await self._settle()  # what clients have sent was sent before time went on
        steps = max(1, min(STEPS_MAX, int(seconds / STEP_MIN_S)))
        end_s = self._clock.monotonic_s() + seconds
        for step in reversed(range(steps)):
            now_s = self._clock.monotonic_s()
            length_s = (end_s - now_s) / (step + 1)
            self._clock.advance(length_s)
            self._hear_from_clients()
            self._timers.run_due()
            await self._settle()
            await self._turned.turn(length_s)
        self._timers.hurry(FREQUENT_S)
        await self._settle()

    async def _settle(self) -> None:
        """Let what was begun go on, and what works in slices finish."""
        for _ in range(TURNS):
            await asyncio.sleep(0)
        if (registration := self.broker.state.registration) is not None:
            for link in registration.links:
                await link.settled()
        while (due_s := self._timers.next_due_s()) is not None:
            if due_s > self._clock.monotonic_s():
                return
            self._timers.run_due()
            await asyncio.sleep(0)

    def _hear_from_clients(self) -> None:
        registry, now_s = self.broker.state.clients, self._clock.monotonic_s()
        consumers = [group.members for group in registry.consumers.values()]
        for members in (*consumers, *registry.producers.values()):
            for client in members.values():
                client.seen_s = now_s

    def _published(self, topic: str) -> list[StoredMessage]:
        store = self.broker.state.store
        messages: list[StoredMessage] = []
        for queue_id in store.topics().get(topic, []):
            first, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
            while first < end:
                found = store.read(topic, queue_id, first, count_max=READ_COUNT)
                messages += decode_records(found.body)
                assert found.next_offset > first, found.status
                first = found.next_offset
        return sorted(messages, key=lambda message: message.log_offset)
