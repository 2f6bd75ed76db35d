"""Whether a send that failed is tried again, and when. Knows nothing of sockets or clocks.

A broker that is busy says so to be left in peace: the next attempt waits, twice as long each time.
After any other failure that another broker might not share, the next attempt is made at once. The
half message of a transaction is sent again only when it is certain that no broker has it: of two
halves one would stay open.
"""

from __future__ import annotations

from random import Random  # noqa: TID251 - the type; the instance is injected
from typing import Any, Final

from ariane.codes import ResponseCode
from ariane.errors import BrokerBusy, ClientError, ConnectionLost, RequestFailed

BUSY_WAIT_S: Final = 0.02
BUSY_WAIT_MAX_S: Final = 1.0
# Another broker may well take what this one refused with these (RocketMQ's own set).
RETRIED_CODES: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        204,  # NO_BUYER_ID
        205,  # NOT_IN_CURRENT_UNIT
        ResponseCode.FLOW_CONTROL,
        ResponseCode.GO_AWAY,
    }
)


class Unreached(ConnectionLost):
    """No connection could be made, so nothing has been sent."""


class NotSafe(ClientError):
    """A broker has stored it and says that the flush or the replica was late."""

    def __init__(self, outcome: Any) -> None:
        super().__init__("stored, but not as safe as it should be")
        self.outcome = outcome


def may_be_the_brokers(error: ClientError) -> bool:
    """Whether the failure is one that another broker might not share."""
    return not isinstance(error, RequestFailed) or error.code in RETRIED_CODES


class Retries:
    """The attempts of one send: told of each failure, says how long to wait for the next."""

    def __init__(self, retries: int, *, is_half: bool = False) -> None:
        self._left = retries
        self._is_half = is_half
        self._may_wait = retries > 0
        self._busy_count = 0

    @property
    def is_last(self) -> bool:
        """Whether no attempt may follow the one that is made now."""
        return self._left <= 0

    def wait_s_after(self, error: ClientError, random: Random) -> float | None:
        """Seconds until the next attempt, 0 for at once; None when this failure is the last."""
        if not may_be_the_brokers(error):
            return None
        if self._is_half and not isinstance(error, RequestFailed | Unreached):
            return None
        if isinstance(error, BrokerBusy):
            # Only time ends this, unless no second attempt was wanted at all.
            self._busy_count += 1
            longest_s = min(BUSY_WAIT_MAX_S, BUSY_WAIT_S * 2.0 ** (self._busy_count - 1))
            return longest_s * random.uniform(0.5, 1.0) if self._may_wait else None
        self._left -= 1
        return 0.0 if self._left >= 0 else None
