"""When a failed send is tried again: a table of failures and waits."""

from random import Random

import pytest

from ariane.client.send_retries import BUSY_WAIT_MAX_S, BUSY_WAIT_S, Retries, may_be_the_brokers
from ariane.codes import ResponseCode
from ariane.errors import (
    BrokerBusy,
    ClientError,
    ConnectionLost,
    MessageRefused,
    RequestFailed,
    RequestTimeout,
)

BUSY = RequestFailed.of(ResponseCode.SYSTEM_BUSY, "")
LOST = ConnectionLost("gone")
REFUSED = RequestFailed.of(ResponseCode.MESSAGE_ILLEGAL, "")
DICE = Random(1)

ATTEMPTS: dict[str, tuple[int, list[ClientError], list[bool]]] = {
    # retries, failures, whether there is another attempt after each
    "lost connections": (2, [LOST, LOST, LOST], [True, True, False]),
    "timeouts and refusals count alike": (
        1,
        [RequestTimeout(""), RequestFailed.of(ResponseCode.SYSTEM_ERROR, "")],
        [True, False],
    ),
    "no retries": (0, [LOST], [False]),
    "no retries, busy": (0, [BUSY], [False]),
    "busy ends with time only": (1, [BUSY] * 9, [True] * 9),
    "busy is not counted": (1, [BUSY, LOST, BUSY, LOST], [True, True, True, False]),
    "what no broker takes": (5, [REFUSED], [False]),
}


@pytest.mark.parametrize(("retries", "failures", "goes_on"), ATTEMPTS.values(), ids=ATTEMPTS)
def test_attempts(retries: int, failures: list[ClientError], goes_on: list[bool]) -> None:
    attempts = Retries(retries)
    waits = [attempts.wait_s_after(failure, DICE) for failure in failures]
    assert [wait is not None for wait in waits] == goes_on


def test_busy_brokers_are_left_alone_longer_each_time() -> None:
    attempts = Retries(1)
    waits = [attempts.wait_s_after(BUSY, DICE) or 0 for _ in range(12)]
    longest = [min(BUSY_WAIT_S * 2**count, BUSY_WAIT_MAX_S) for count in range(12)]
    assert all(high / 2 <= wait <= high for wait, high in zip(waits, longest, strict=True))
    assert len(set(waits)) == 12  # many who wait do not come back at once


def test_other_failures_are_tried_elsewhere_at_once() -> None:
    assert Retries(1).wait_s_after(LOST, DICE) == 0


def test_blame() -> None:
    assert may_be_the_brokers(BUSY)
    assert may_be_the_brokers(LOST)
    assert not may_be_the_brokers(REFUSED)
    assert isinstance(BUSY, BrokerBusy)
    assert isinstance(REFUSED, MessageRefused)
