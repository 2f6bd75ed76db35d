"""The dispatch table: every code has an answer, and every error its code."""

from __future__ import annotations

import pytest

from ariane.broker import dispatch as table
from ariane.broker.dispatch import HANDLERS, Handler
from ariane.broker.requests import Reply
from ariane.codes import RequestCode, ResponseCode
from ariane.errors import (
    CorruptRecord,
    DiskFull,
    GroupNotFound,
    InvalidParameter,
    RequestRejected,
    StoreReadOnly,
    TopicNotFound,
)
from tests.unit.broker.rig import Rig, send_fields


@pytest.mark.parametrize("code", [0, -1, 199, 9999, 2**31 - 1])
def test_a_code_nobody_serves_is_named_in_the_refusal(code: int) -> None:
    answer = Rig().call(code)
    assert answer is not None
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert str(code) in (answer.remark or "")


def test_the_data_plane_is_served() -> None:
    served = {10, 11, 12, 29, 30, 31, 32, 33, 310, 320, 361}
    assert served <= set(HANDLERS)


ERRORS = {
    ResponseCode.TOPIC_NOT_EXIST: TopicNotFound("T"),
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: GroupNotFound("g"),
    ResponseCode.INVALID_PARAMETER: InvalidParameter("queueId"),
    ResponseCode.NO_PERMISSION: RequestRejected("no", ResponseCode.NO_PERMISSION),
    ResponseCode.SERVICE_NOT_AVAILABLE: DiskFull("full"),
    ResponseCode.SYSTEM_ERROR: CorruptRecord("bad"),
}


@pytest.mark.parametrize(("code", "error"), ERRORS.items())
def test_errors_become_codes_in_one_place(
    monkeypatch: pytest.MonkeyPatch, code: ResponseCode, error: Exception
) -> None:
    def fail(request: object, state: object) -> Reply:
        raise error

    monkeypatch.setitem(table.HANDLERS, 4242, Handler(fail))
    answer = Rig().call(4242)
    assert answer is not None
    assert (answer.code, answer.remark) == (code, str(error))


def test_a_store_that_cannot_write_says_so() -> None:
    rig = Rig()
    rig.topic("T")

    def refuse(message: object) -> None:
        raise StoreReadOnly("fdatasync failed: input/output error")

    rig.state.store.append = refuse  # type: ignore[method-assign,assignment]
    answer = rig.send()
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "fdatasync failed" in (answer.remark or "")


def test_a_disk_that_is_full_refuses_until_there_is_room() -> None:
    rig = Rig()
    rig.topic("T")
    rig.disk.used_ratio = 0.95
    rig.state.store.clean()
    answer = rig.send()
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "95% full" in (answer.remark or "")
    rig.disk.used_ratio = 0.5
    rig.state.store.clean()
    assert rig.send().code == ResponseCode.SUCCESS


@pytest.mark.parametrize("missing", ["b", "e", "g"])
def test_a_header_that_lacks_a_field_is_refused_by_name(missing: str) -> None:
    fields = send_fields()
    del fields[missing]
    answer = Rig().call(RequestCode.SEND_MESSAGE_V2, fields, b"x")
    assert answer is not None
    assert (answer.code, f"`{missing}`" in (answer.remark or "")) == (
        ResponseCode.SYSTEM_ERROR,
        True,
    )


def test_answers_are_addressed_to_their_requests() -> None:
    rig = Rig()
    rig.topic("T")
    first, second = rig.send(), rig.send()
    assert second.opaque == first.opaque + 1
    assert first.is_response
