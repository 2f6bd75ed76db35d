"""Locks that brokers keep on queues, so that only one consumer of a group works on each.

A broker forgets a lock 60 seconds after it was last asked for. We ask every 20 seconds and trust
our own lock for 30, so a member that is cut off stops before another one can start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from ariane.client.routes import MASTER_ID, Address
from ariane.client.session import Session
from ariane.codes import RequestCode
from ariane.errors import ClientError
from ariane.protocol import fastjson
from ariane.protocol.bodies import LockReply, LockRequest, MessageQueue
from ariane.protocol.command import Command, request

RENEW_S: Final = 20.0
LOCK_TIMEOUT_S: Final = 1.0

log = logging.getLogger("ariane.client")


class QueueLocks:
    """Locks queues for one member of a group."""

    def __init__(self, session: Session, group: str) -> None:
        self.held: set[MessageQueue] = set()  # asked for, not refused, and not let go
        self._session = session
        self._group = group

    async def lock(self, queues: Iterable[MessageQueue]) -> tuple[set[MessageQueue], set[str]]:
        """Those of the queues that are ours now, and the brokers that could not be asked."""
        by_broker = _by_broker(queues)
        self.held.update(*by_broker.values())  # before it is known: who asks may be cancelled
        outcomes = await asyncio.gather(*map(self._lock, by_broker.values()))
        locked: set[MessageQueue] = set()
        unknown: set[str] = set()
        for broker, outcome in zip(by_broker, outcomes, strict=True):
            if outcome is None:
                unknown.add(broker)
            else:
                locked |= outcome
                self.held.difference_update(set(by_broker[broker]) - outcome)
        return locked, unknown

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Let others have the queues; a broker that does not hear of it waits for 60 seconds."""
        queues = list(queues)
        self.held.difference_update(queues)
        for group in _by_broker(queues).values():
            try:
                await self._session.call(
                    await self._address(group[0]), self._command(RequestCode.UNLOCK_BATCH_MQ, group)
                )
            except ClientError as error:
                log.info("not unlocked group=%s queues=%s: %s", self._group, group, error)

    async def _lock(self, queues: list[MessageQueue]) -> set[MessageQueue] | None:
        try:
            answer = await self._session.call(
                await self._address(queues[0]),
                self._command(RequestCode.LOCK_BATCH_MQ, queues),
                timeout_s=LOCK_TIMEOUT_S,
            )
            return set(fastjson.decode(answer.body, LockReply).locked)
        except ClientError as error:
            log.info("not locked group=%s broker=%s: %s", self._group, queues[0].broker_name, error)
            return None

    def _command(self, code: RequestCode, queues: list[MessageQueue]) -> Command:
        body = LockRequest(client_id=self._session.client_id, group=self._group, queues=queues)
        return request(code, body=fastjson.encode(body))

    async def _address(self, queue: MessageQueue) -> Address:
        route = await self._session.routes.for_reading(queue.topic)
        return route.replica(queue.broker_name, MASTER_ID)


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    by_broker: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        by_broker.setdefault(queue.broker_name, []).append(queue)
    return by_broker
