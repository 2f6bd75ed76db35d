"""How often messages may be tried again: as the program says, else as the group is set."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from ariane.client.session import Session
from ariane.codes import RequestCode
from ariane.errors import ClientError, ProtocolError
from ariane.protocol import fastjson
from ariane.protocol.bodies import SubscriptionGroupConfig
from ariane.protocol.command import request
from ariane.protocol.headers.groups import GroupHeader

RETRIES_MAX: Final = 16  # of a group that nobody has set, and with brokers that cannot tell
ASKED_S: Final = 60.0  # between two questions, or about

log = logging.getLogger("ariane.client")


class Tries:
    """The number for one group; what the group says is asked for now and then."""

    def __init__(self, session: Session, group: str, own: int | None) -> None:
        self.own = own  # the program's; it is told to brokers, and theirs counts where it is None
        self.max = RETRIES_MAX if own is None else own
        self._session = session
        self._group = group
        self._asked_s = float("-inf")

    async def refresh(self, topics: Iterable[str]) -> None:
        """Ask a broker of one of the topics, if it matters and was not done lately."""
        now_s = self._session.clock.monotonic_s()
        if self.own is not None or now_s - self._asked_s < ASKED_S / 2:
            return
        self._asked_s = now_s
        for topic in topics:
            try:
                route = await self._session.routes.for_reading(topic)
                broker = min(route.addresses)
                answer = await self._session.call(
                    route.replica(broker),
                    request(
                        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupHeader(group=self._group)
                    ),
                )
                if answer.body:
                    config = fastjson.decode(answer.body, SubscriptionGroupConfig)
                    self.max = config.retry_times_max
                return
            except (ClientError, ProtocolError) as error:  # 4.x brokers do not know the question
                log.info("retries of the group not known group=%s: %s", self._group, error)
