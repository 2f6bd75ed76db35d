"""A running broker: the store, the tables, the sockets before them, and the work by the clock."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Iterable
from functools import partial
from random import Random  # noqa: TID251 - the type; the instance is injected
from typing import Final, TypeVar

from ariane.broker.bulk_reads import BulkReads
from ariane.broker.clients import ClientRegistry
from ariane.broker.config_update import ConfigUpdates
from ariane.broker.consume_offsets import OffsetTable
from ariane.broker.consumer_filters import FilterTable
from ariane.broker.dispatch import dispatch
from ariane.broker.flow_control import FlowControl
from ariane.broker.hot_lane import HotLane
from ariane.broker.journal import Journal
from ariane.broker.locks import QueueLocks
from ariane.broker.long_polling import LongPolling
from ariane.broker.parked import Parked
from ariane.broker.persistence import Saver, ThreadSaver
from ariane.broker.pop.service import Pop
from ariane.broker.registration import Registration
from ariane.broker.schedule import Schedule
from ariane.broker.staging.service import Staging
from ariane.broker.state import BrokerState
from ariane.broker.stats import Stats
from ariane.broker.tables import GroupTable, TopicTable
from ariane.broker.timer import TimerService
from ariane.broker.transactions import Transactions
from ariane.clock import Clock, Timer, Timers
from ariane.config import BrokerConfig, StoreConfig
from ariane.disk import Disk
from ariane.errors import ConfigError
from ariane.protocol.message import UniqueKeys
from ariane.remoting.client import ConnectionPool
from ariane.remoting.connection import Connection, ConnectionLimits, Handler
from ariane.remoting.poller import Poller, poller_of
from ariane.remoting.server import Server, bind, serve
from ariane.store import config_files
from ariane.store.store import Store

logger = logging.getLogger("ariane.broker")

T = TypeVar("T")

TICK_S: Final = 0.1  # how often the store looks after itself
LEASE_SCAN_S: Final = 30.0
FLUSH_WAIT_S: Final = 10.0  # for answers when the broker stops; a late flush is told before that
ANY_HOSTS: Final = ("", "0.0.0.0", "::")


class Broker:
    """Keeps messages and gives them out, from `start` to `stop`.

    The store lies at the root of `disk`. Whoever starts the broker drives `timers`. With
    `intercept` every request goes through the handler it makes of ours, and none takes the lane.
    Without threads the loop does by itself what else would block it: for disks in memory.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store_config: StoreConfig,
        *,
        clock: Clock,
        disk: Disk,
        random: Random,
        timers: Timers,
        limits: ConnectionLimits | None = None,
        intercept: Callable[[Handler], Handler] | None = None,
        has_threads: bool = True,
    ) -> None:
        self._config = config
        self._store_config = store_config
        self._limits = limits
        self._intercept = intercept
        self._has_threads = has_threads
        self._clock = clock
        self._disk = disk
        self._random = random
        self._timers = timers
        self._servers: list[Server] = []
        self._poller: Poller | None = None
        self._jobs: list[Timer] = []
        self._state: BrokerState | None = None
        self._saver: Saver | None = None
        self._registration: Registration | None = None

    @property
    def state(self) -> BrokerState:
        """The broker's inside, once started."""
        assert self._state is not None, "the broker has not been started"
        return self._state

    @property
    def port(self) -> int:
        """The port it listens on, once started."""
        return self._servers[0].port if self._servers else 0

    @property
    def connections(self) -> list[Connection]:
        """Every open connection, of the main port and the VIP port."""
        return [connection for server in self._servers for connection in server.connections]

    async def start(self) -> None:
        """Open the store, recover what a crash left, listen, and register; port 0 picks one."""
        config = self._config
        bound = bind(config.bind_host, config.port)
        try:
            address = (await advertised_host(config), int(bound.getsockname()[1]))
            await self._open(address)
            await self._listen(bound)
        except BaseException:
            bound.close()
            self._close()
            raise
        self._schedule()
        self._registration = Registration(self.state, ConnectionPool(self._timers), address)
        self.state.registration = self._registration
        self._registration.start()
        await self._registration.settled()
        logger.info("broker serving name=%s address=%s:%d", config.name, *address)

    async def stop(self) -> None:
        """Leave the name servers, answer what waits, save everything and close the store."""
        for job in self._jobs:
            job.cancel()
        if self._registration is not None:
            await self._registration.stop()
        if self._state is not None:
            self._state.flow.stop()
            self._state.schedule.stop()
            self._state.timer.stop()
            self._state.staging.stop()
            self._state.held.release_all()
            self._state.pop.release_all()
            for server in self._servers:
                server.hush()
            for parked in (self._state.parked, self._state.staging.parked):
                await self._answer_parked(parked)
        for server in self._servers:
            await server.close()
        self._close()
        logger.info("broker stopped name=%s", self._config.name)

    async def _answer_parked(self, parked: Parked) -> None:
        """Give the answers that wait; a message that is stored is told as stored."""
        is_empty = asyncio.Event()
        parked.when_empty(is_empty.set)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(is_empty.wait(), FLUSH_WAIT_S)

    async def _open(self, address: tuple[str, int]) -> None:
        """Open the store, off the loop since recovery may take seconds, and load the tables."""
        loop = asyncio.get_running_loop()

        def post(call: Callable[[], None]) -> None:
            loop.call_soon_threadsafe(call)

        write = partial(config_files.persist, self._disk)
        journal_of = partial(Journal, self._disk)
        self._saver = (
            ThreadSaver(write, journal_of, post)
            if self._has_threads
            else Saver(write, journal_of=journal_of)
        )
        updates = ConfigUpdates(self._clock, self._saver)
        updates.load(self._disk)
        open_store = partial(Store.open, store_host=address)
        if self._has_threads:
            self._poller = poller_of(loop)
            open_store = partial(open_store, post=post, loop=self._poller or loop)
        store_config = updates.applied_to(self._store_config)
        store = await self._off_loop(open_store, store_config, self._disk, self._clock)
        try:
            state = assemble(
                updates.applied_to(self._config),
                store,
                self._saver,
                updates,
                disk=self._disk,
                timers=self._timers,
                random=self._random,
                address=address,
                connections=lambda: self.connections,
            )
            state.schedule.load(self._disk)
            state.filters.load(self._disk)
            if store.was_killed:
                state.offsets.correct(store.max_offset)
            await self._off_loop(state.pop.load, self._disk)
            await self._off_loop(state.transactions.load)
            await self._off_loop(state.staging.load, self._disk)
        except BaseException:
            store.stop()
            raise
        store.start()
        self._state = state  # not before: what has not been loaded whole must not be saved

    async def _off_loop(self, work: Callable[..., T], *arguments: object) -> T:
        """The result of what may take long."""
        if self._has_threads:
            return await asyncio.to_thread(work, *arguments)
        return work(*arguments)

    async def _listen(self, bound: socket.socket) -> None:
        """Serve the main port and, for clients of old, the one two below it if that is free."""
        self._servers.append(await self._serve(bound))
        vip_port = self.port - 2
        if self._config.vip_port and vip_port > 0:
            try:
                self._servers.append(await self._serve(bind(self._config.bind_host, vip_port)))
            except OSError as error:
                logger.info("VIP port not served port=%d reason=%s", vip_port, error)

    async def _serve(self, bound: socket.socket) -> Server:
        handler: Handler = partial(dispatch, self.state)
        return await serve(
            "",
            0,
            bound=bound,
            handler=handler if self._intercept is None else self._intercept(handler),
            decoder_of=self.state.lane.reader_of if self._intercept is None else None,
            on_close=self.state.clients.closed,
            connections_max=self._config.connections_max,
            host_connections_max=self._config.host_connections_max,
            timers=self._timers,
            limits=self._limits,
            poller=self._poller,
        )

    def _schedule(self) -> None:
        """Everything that is done by the clock."""
        state = self.state
        self._jobs += [*state.stats.start(self._timers), state.clients.start()]
        self._every(TICK_S, state.store.tick)
        self._every(LEASE_SCAN_S, state.locks.forget_expired)
        self._every(state.config.offset_persist_interval_ms / 1000, self._save)
        self._every(state.store_config.delay_persist_interval_ms / 1000, state.schedule.save)
        state.schedule.start(self._timers)
        state.timer.start(self._timers)
        state.transactions.start()
        self._jobs += state.pop.start(self._timers)
        self._jobs += state.staging.start(self._timers)

    def _every(self, interval_s: float, job: Callable[[], None]) -> None:
        self._jobs.append(self._timers.every(interval_s, job))

    def _save(self) -> None:
        """Start writing what has changed; topics and groups are written when they change."""
        for file in (self.state.topics.file, self.state.groups.file, self.state.updates.file):
            file.save()
        self.state.pop.save()
        self.state.offsets.save()
        self.state.filters.save()
        self.state.staging.save()

    def _save_offsets(self) -> None:
        """Save how far groups have come, never ahead of the notes of what was popped."""
        store = self.state.store
        store.flush_now()
        if store.read_only_reason is None and store.flushed == store.written:
            self.state.offsets.save_now()

    def _close(self) -> None:
        """Write everything for the last time, and stop the store cleanly."""
        steps: list[Callable[[], object]] = []
        if self._poller is not None:
            steps.append(self._poller.close)
        if self._saver is not None:
            steps.append(self._saver.close)
        if (state := self._state) is not None:
            files = (state.topics.file, state.groups.file, state.updates.file)
            steps += [state.transactions.stop, *(file.save_now for file in files)]
            steps += [state.pop.save_now, state.filters.save_now]
            steps += [
                self._save_offsets,
                state.staging.save_now,
                state.schedule.save_now,
                state.store.stop,
            ]
        for step in steps:
            try:
                step()
            except Exception:  # the store must be stopped whatever became of the rest
                logger.exception("a step of stopping failed")


def assemble(
    config: BrokerConfig,
    store: Store,
    saver: Saver,
    updates: ConfigUpdates | None = None,
    *,
    disk: Disk,
    timers: Timers,
    random: Random,
    address: tuple[str, int],
    connections: Callable[[], Iterable[Connection]] = tuple,
) -> BrokerState:
    """Everything the handlers share, with its parts made to hear of each other.

    The tables are loaded here, since parts go by them when they are made.
    """
    clock = timers.clock
    state = BrokerState(
        config=config,
        store_config=store.config,
        clock=clock,
        timers=timers,
        random=random,
        store=store,
        topics=TopicTable(config, clock, saver),
        groups=GroupTable(config, clock, saver),
        offsets=OffsetTable(clock, saver),
        clients=ClientRegistry(timers),
        filters=FilterTable(clock, saver),
        locks=QueueLocks(clock),
        stats=Stats(clock),
        flow=FlowControl(timers, lambda: state.config, lambda: state.store_config, connections),
        held=LongPolling(store, timers),
        parked=Parked(store, timers, lambda: state.store_config.sync_flush_timeout_ms / 1000),
        unique_keys=UniqueKeys(clock, random, process_id=os.getpid(), host=address[0]),
        store_host=address,
        updates=updates or ConfigUpdates(clock, saver),
    )
    for table in (state.topics, state.groups, state.offsets):
        table.load(disk)
    state.clients.notices.may_notify = state.may_notify
    state.clients.on_subscribe.append(state.filters.register)
    state.schedule = Schedule(state, saver)
    state.timer = TimerService(state)
    state.transactions = Transactions(state)
    state.pop = Pop(state, saver)
    state.bulk = BulkReads(state)
    state.staging = Staging(state, saver)
    state.lane = HotLane(state)
    state.topics.on_change.append(state.held.release)
    state.offsets.on_reset.append(lambda topic, group: state.held.release(topic))
    return state


async def advertised_host(config: BrokerConfig) -> str:
    """The address clients are told, and message ids hold: as set, as bound, or the outward one."""
    host = config.advertised_host or config.bind_host
    if host in ANY_HOSTS:
        return outward_address()
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise ConfigError(
            f"setting brokerIP1={host!r} cannot be used: {error.strerror}; give an address that"
            " clients reach this broker at"
        ) from error
    return str(found[0][4][0])


def outward_address() -> str:
    """The address this machine would use to reach others; nothing is sent to find out."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
    return "127.0.0.1"
