"""Being one of a group: who the others are, which queues are ours, and when to ask again.

The split is worked out every 20 seconds, and at once when a broker says that somebody came or went
(but no more than once a second). What cannot be worked out now stays as it is: queues are only
given away by a split that was.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from ariane.client.rebalance import Strategy, allocate
from ariane.client.routes import MASTER_ID, Address, TopicRoute
from ariane.client.session import Session
from ariane.codes import RequestCode
from ariane.errors import ClientError, ConnectionLost, RequestTimeout, RouteNotFound
from ariane.protocol import fastjson
from ariane.protocol.bodies import ConsumerList, MessageQueue
from ariane.protocol.command import request
from ariane.protocol.headers.groups import ConsumerGroupHeader
from ariane.topics import RETRY_PREFIX

INTERVAL_S: Final = 20.0
GAP_S: Final = 1.0  # at least, between two rounds
IMPATIENCE_MAX_S: Final = 8.0  # at most, until a round that left something open is repeated
FIRST_ROUND_S: Final = 3.0  # that starting waits at most for the first round

log = logging.getLogger("ariane.client")

# Told of the queues that are ours now; answers whether they could all be taken.
Share = Callable[[str, list[MessageQueue]], Awaitable[bool]]


class Membership:
    """One member's place in its group."""

    def __init__(
        self,
        session: Session,
        group: str,
        *,
        strategy: Strategy,
        is_broadcast: bool,
        topics: Callable[[], Iterable[str]],
        on_share: Share,
    ) -> None:
        self._session = session
        self._group = group
        self._strategy = strategy
        self._is_broadcast = is_broadcast
        self._topics = topics
        self._on_share = on_share
        self._known: set[Address] = set()  # brokers that have heard of us as we are
        self.missing: set[str] = set()  # topics that are subscribed and not there
        self._wake = asyncio.Event()
        self._has_begun = asyncio.Event()  # the first round has ended
        self._task: asyncio.Task[None] | None = None
        self._patience_s = GAP_S
        self._last_s = float("-inf")

    async def start(self) -> None:
        """Take part, from now on; returns when our first share is taken.

        What brokers do not answer in time is taken later: one that is away does not keep us.
        """
        self._task = asyncio.get_running_loop().create_task(self._keep_balanced())
        timer = self._session.timers.after(FIRST_ROUND_S, self._has_begun.set)
        try:
            await self._has_begun.wait()
        finally:
            timer.cancel()

    async def stop(self) -> None:
        """Ask no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        self._has_begun.set()  # nobody waits for what will not be

    def hurry(self) -> None:
        """Ask again as soon as may be."""
        self._wake.set()

    def forget_brokers(self) -> None:
        """Every broker must hear of us anew: what we want has changed."""
        self._known.clear()

    async def meet(self, topics: Iterable[str]) -> None:
        """Find the topics' brokers and introduce ourselves to those that do not know us."""
        for topic in topics:
            try:
                route = await self._session.routes.for_reading(topic)
            except ClientError as error:
                log.info("no route yet topic=%s group=%s: %s", topic, self._group, error)
            else:
                await self._greet(route)

    async def meet_again(self, address: Address) -> None:
        """Introduce ourselves to a broker that does not seem to know us."""
        await self._introduce({address})

    async def _keep_balanced(self) -> None:
        while True:
            self._wake.clear()
            is_settled = await self._round()
            self._has_begun.set()
            self._patience_s = GAP_S if is_settled else min(self._patience_s * 2, IMPATIENCE_MAX_S)
            wait_s = INTERVAL_S if is_settled else self._patience_s
            timer = self._session.timers.after(wait_s, self._wake.set)
            await self._wake.wait()
            timer.cancel()
            since_s = self._session.clock.monotonic_s() - self._last_s
            if since_s < GAP_S:
                await self._session.sleep(GAP_S - since_s)

    async def _round(self) -> bool:
        """Work out every topic's split once; whether nothing was left open."""
        self._last_s = self._session.clock.monotonic_s()
        is_settled = True
        for topic in list(self._topics()):
            try:
                is_settled &= await self._balance(topic)
            except RouteNotFound as error:
                self._miss(topic, error)
                is_settled = False
            except ClientError as error:
                log.warning("not balanced topic=%s group=%s: %s", topic, self._group, error)
                is_settled = False
            except Exception:  # one topic's fault must not keep the others from being read
                log.exception("balancing failed topic=%s group=%s", topic, self._group)
                is_settled = False
        return is_settled

    def _miss(self, topic: str, error: RouteNotFound) -> None:
        """Say it loudly once: a name that was mistyped would be waited for in silence."""
        if topic in self.missing or topic.startswith(RETRY_PREFIX):
            log.info("not balanced topic=%s group=%s: %s", topic, self._group, error)
        else:
            log.warning("nothing to consume yet topic=%s group=%s: %s", topic, self._group, error)
            self.missing.add(topic)

    def _is_there(self, topic: str) -> None:
        if topic in self.missing:
            log.info("topic is there now topic=%s group=%s", topic, self._group)
            self.missing.discard(topic)

    async def _balance(self, topic: str) -> bool:
        route = await self._session.routes.for_reading(topic)
        self._is_there(topic)
        await self._greet(route)
        if self._is_broadcast:
            return await self._on_share(topic, list(route.readable))
        if not route.readable:
            return False
        members = await self._members(route)
        share = allocate(self._strategy, self._session.client_id, route.readable, members)
        is_member = self._session.client_id in members
        return await self._on_share(topic, share) and is_member

    async def _members(self, route: TopicRoute) -> list[str]:
        """The group as a broker of the topic knows it: each knows all of it, replicas as well.

        Masters come first, in any order; who cannot be reached or does not know is passed over.
        """
        if not route.addresses:
            raise RouteNotFound(f"topic {route.topic!r} has no broker now")
        replicas = [
            (number != MASTER_ID, at)
            for ids in route.addresses.values()
            for number, at in ids.items()
        ]
        self._session.random.shuffle(replicas)
        failures: list[ClientError] = []
        for _, address in sorted(replicas, key=lambda replica: replica[0]):
            header = ConsumerGroupHeader(group=self._group)
            try:
                answer = await self._session.call(
                    address, request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
                )
            except (ConnectionLost, RequestTimeout) as error:
                failures.append(error)
            else:
                return fastjson.decode(answer.body, ConsumerList).client_ids
        raise failures[0]

    async def _greet(self, route: TopicRoute) -> None:
        addresses = {address for ids in route.addresses.values() for address in ids.values()}
        if strangers := addresses - self._known:
            await self._introduce(strangers)

    async def _introduce(self, strangers: set[Address]) -> None:
        self._known |= strangers  # before they answer: `forget_brokers` may come in between
        self._known -= await self._session.greet(strangers)
