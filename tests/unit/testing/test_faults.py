"""Faults on order: which requests they meet, how often, and what becomes of them."""

from typing import cast

import pytest

from ariane.codes import RequestCode, ResponseCode
from ariane.protocol.command import Command, reply
from ariane.remoting.connection import Connection
from ariane.testing.faults import Fault, FaultSwitches, How, codes_of

SEND, PULL = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE


class Peer:
    """A connection as far as a fault can tell."""

    def __init__(self) -> None:
        self.dropped = ""

    def drop(self, reason: str) -> None:
        self.dropped = reason


class Rig:
    """Switches before a handler that notes what reaches it."""

    def __init__(self) -> None:
        self.switches = FaultSwitches()
        self.carried_out: list[int] = []
        self.peer = Peer()
        self._handle = self.switches.around(self._carry_out)

    def _carry_out(self, connection: Connection, command: Command) -> Command | None:
        self.carried_out.append(command.code)
        return None if command.is_one_way else reply(command)

    def order(
        self,
        request: str | int,
        *,
        times: int | None = 1,
        how: How = "refuse",
        code: int = 1,
        topic: str | None = None,
    ) -> Fault:
        return self.switches.order(
            request, times=times, how=how, code=code, remark="planned", topic=topic
        )

    def send(self, code: int = SEND, **ext: str) -> int | None:
        """The code of the answer, None when there is none."""
        answer = self._handle(cast(Connection, self.peer), Command(code, ext=ext))
        return None if answer is None else answer.code


def test_strikes_as_often_as_ordered_and_only_requests_of_its_kind() -> None:
    rig = Rig()
    fault = rig.order("send", times=2, code=ResponseCode.SYSTEM_BUSY)
    codes = [rig.send(), rig.send(PULL), rig.send(RequestCode.SEND_BATCH_MESSAGE), rig.send()]
    assert codes == [ResponseCode.SYSTEM_BUSY, 0, ResponseCode.SYSTEM_BUSY, 0]
    assert rig.carried_out == [PULL, SEND]
    assert (fault.hits, fault.is_over) == (2, True)


@pytest.mark.parametrize("field", ["topic", "b"])
def test_strikes_one_topic_under_either_name_of_the_field(field: str) -> None:
    rig = Rig()
    rig.order("send", topic="orders")
    assert rig.send(**{field: "bills"}) == 0
    assert rig.send(**{field: "orders"}) == 1


@pytest.mark.parametrize(
    ("how", "answer", "carried_out", "dropped"),
    [
        ("refuse", 1, [], False),
        ("ignore", None, [], False),
        ("lose", None, [SEND], False),
        ("disconnect", None, [], True),
    ],
)
def test_ways_to_go_wrong(
    how: How, answer: int | None, carried_out: list[int], dropped: bool
) -> None:
    rig = Rig()
    rig.order("send", how=how)
    assert rig.send() == answer
    assert rig.carried_out == carried_out
    assert bool(rig.peer.dropped) == dropped
    assert rig.send() == 0


def test_without_a_number_of_times_it_strikes_until_cancelled() -> None:
    rig = Rig()
    fault = rig.order("send", times=None)
    assert [rig.send() for _ in range(5)] == [1] * 5
    fault.cancel()
    assert rig.send() == 0
    assert fault.hits == 5


def test_the_first_ordered_is_used_up_first() -> None:
    rig = Rig()
    rig.order("send", code=1)
    rig.order("send", code=2)
    assert [rig.send(), rig.send(), rig.send()] == [1, 2, 0]


def test_healing_takes_everything_back() -> None:
    rig = Rig()
    fault = rig.order("send", times=None)
    rig.switches.heal()
    assert rig.send() == 0
    assert fault.is_over


def test_requests_are_counted_however_they_end() -> None:
    rig = Rig()
    rig.order("send")
    for code in (SEND, SEND, PULL, RequestCode.SEND_BATCH_MESSAGE):
        rig.send(code)
    assert rig.switches.handled("send") == 3
    assert rig.switches.handled("pull") == 1
    assert rig.switches.handled("ack") == 0


def test_requests_are_named_by_kind_by_name_or_by_number() -> None:
    assert codes_of("pull") == {11, 361}
    assert codes_of("END_TRANSACTION") == {37}
    assert codes_of(RequestCode.HEART_BEAT) == {34}
    with pytest.raises(ValueError, match=r"no request is called 'sned'; there are 'send', 'pull'"):
        codes_of("sned")
