"""Replies to requests: pushed to the client that waits, kept, and answered truthfully."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ariane.broker.clients import Client
from ariane.codes import RequestCode, ResponseCode
from ariane.errors import ConnectionLost, DiskFull, RequestTimeout
from ariane.protocol.command import Command, reply
from ariane.protocol.message import decode_properties
from ariane.store.messages import NewMessage
from tests.unit.broker.rig import Peer, Rig, send_fields
from tests.unit.broker.test_clients import Consumer
from tests.unit.broker.test_send import LONG_NAMES

TOPIC = "DefaultCluster_REPLY_TOPIC"
PROPERTIES = (
    "MSG_TYPE\x01reply\x02CORRELATION_ID\x01c1\x02REPLY_TO_CLIENT\x01asker\x02UNIQ_KEY\x01U\x02"
)


class Asker(Consumer):
    """A client that waits for a reply."""


@pytest.fixture
def rig() -> Rig:
    return Rig()


def known(rig: Rig, client_id: str = "asker", group: str = "askers") -> Asker:
    asker = Asker()
    rig.state.clients.produce(
        Client(asker, client_id, "JAVA", 479),  # type: ignore[arg-type]
        group,
    )
    return asker


def send_reply(rig: Rig, peer: Peer, **fields: Any) -> Command | None:
    ext = send_fields(topic=TOPIC, properties=PROPERTIES) | fields
    return rig.call(RequestCode.SEND_REPLY_MESSAGE_V2, ext, b"42", peer=peer)


async def settled() -> None:
    """Let callbacks of futures run."""
    await asyncio.sleep(0)


async def test_a_reply_is_pushed_to_whom_it_is_for(rig: Rig) -> None:
    asker, replier = known(rig), Peer(("10.0.0.7", 1234))
    assert send_reply(rig, replier) is None
    [(pushed, timeout_s, future)] = asker.asked
    assert (pushed.code, pushed.body, timeout_s) == (326, b"42", 10.0)
    now_ms = str(rig.clock.wall_ms())
    assert decode_properties(pushed.ext.pop("properties")) == {
        "MSG_TYPE": "reply",
        "CORRELATION_ID": "c1",
        "REPLY_TO_CLIENT": "asker",
        "UNIQ_KEY": "U",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
        "PUSH_REPLY_TIME": now_ms,
    }
    assert pushed.ext == {
        "producerGroup": "producers",
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "1700000000123",
        "flag": "0",
        "reconsumeTimes": "0",
        "unitMode": "false",
        "bornHost": "10.0.0.7:1234",
        "storeHost": "127.0.0.1:10911",
        "storeTimestamp": now_ms,
    }
    assert replier.sent == []  # not before the client took it
    future.set_result(reply(pushed))
    await settled()
    [answer] = replier.sent
    assert answer.code == ResponseCode.SUCCESS
    (stored,) = rig.stored(TOPIC)
    assert answer.ext == {
        "queueId": "0",
        "queueOffset": "0",
        "msgId": stored.offset_message_id,
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    assert stored.stored_body == b"42"


async def test_long_names_will_do(rig: Rig) -> None:
    asker, replier = known(rig), Peer()
    ext = LONG_NAMES | {"topic": TOPIC, "queueId": 0, "properties": PROPERTIES}
    assert rig.call(RequestCode.SEND_REPLY_MESSAGE, ext, b"42", peer=replier) is None
    assert asker.asked[0][0].ext["flag"] == "9"


BAD: dict[str, Command | Exception] = {
    "refused": reply(Command(326), 1, remark="no such request"),
    "late": RequestTimeout("no answer in time"),
    "gone": ConnectionLost("closed by the peer"),
}


@pytest.mark.parametrize("outcome", BAD.values(), ids=BAD)
async def test_who_replied_learns_that_it_was_not_taken(
    rig: Rig, outcome: Command | Exception
) -> None:
    asker, replier = known(rig), Peer()
    send_reply(rig, replier)
    future = asker.asked[0][2]
    if isinstance(outcome, Command):
        future.set_result(outcome)
    else:
        future.set_exception(outcome)
    await settled()
    [answer] = replier.sent
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "push reply message to asker fail" in str(answer.remark)
    assert answer.ext["msgId"] == rig.stored(TOPIC)[0].offset_message_id


def test_nobody_to_push_to(rig: Rig) -> None:
    answer = send_reply(rig, Peer())
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "<asker> not found" in str(answer.remark)
    answer = send_reply(rig, Peer(), i="MSG_TYPE\x01reply\x02")
    assert answer is not None
    assert "REPLY_TO_CLIENT" in str(answer.remark)


async def test_replies_need_not_be_kept(rig: Rig) -> None:
    rig.configure(store_replies=False)
    asker, replier = known(rig), Peer()
    send_reply(rig, replier)
    asker.asked[0][2].set_result(reply(asker.asked[0][0]))
    await settled()
    assert (replier.sent[0].ext["msgId"], replier.sent[0].ext["queueOffset"]) == ("0", "0")
    assert rig.state.store.written == 0


async def test_a_full_disk_does_not_hold_replies_up(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(store: object, message: NewMessage) -> None:
        raise DiskFull("full")

    monkeypatch.setattr(type(rig.state.store), "append", full)
    asker, replier = known(rig), Peer()
    send_reply(rig, replier)
    asker.asked[0][2].set_result(reply(asker.asked[0][0]))
    await settled()
    assert (replier.sent[0].code, replier.sent[0].ext["msgId"]) == (ResponseCode.SUCCESS, "0")


async def test_the_client_is_found_where_it_was_heard_last(rig: Rig) -> None:
    before, after = known(rig), known(rig)
    rig.state.clients.closed(before)  # type: ignore[arg-type]
    send_reply(rig, Peer())
    assert (len(before.asked), len(after.asked)) == (0, 1)
    rig.state.clients.closed(after)  # type: ignore[arg-type]
    assert rig.state.clients.producer("asker") is None


async def test_a_client_is_known_as_long_as_it_is_in_any_group(rig: Rig) -> None:
    asker = known(rig)
    rig.state.clients.produce(Client(asker, "asker", "JAVA", 479), "others")  # type: ignore[arg-type]
    leave = rig.state.clients.leave
    leave(asker, consumer_group=None, producer_group="askers")  # type: ignore[arg-type]
    assert rig.state.clients.producer("asker") is not None
    leave(asker, consumer_group=None, producer_group="others")  # type: ignore[arg-type]
    assert rig.state.clients.producer("asker") is None


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"e": 7}, ResponseCode.INVALID_PARAMETER),
        ({"b": "nowhere", "c": "nothing"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"b": "a/b"}, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_replies_are_checked_like_sends(
    rig: Rig, fields: dict[str, Any], code: ResponseCode
) -> None:
    answer = send_reply(rig, Peer(), **fields)
    assert answer is not None
    assert answer.code == code
