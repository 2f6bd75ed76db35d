"""Transactions over sockets: what the broker is told when a block ends, and how it is answered."""

import asyncio
from random import Random

import pytest

from ariane.client import Client, Message, StoredMessage, TransactionState
from ariane.codes import RequestCode, ResponseCode
from ariane.errors import ClientError, InvalidMessage, RequestFailed
from ariane.protocol import fastjson
from ariane.protocol.bodies import HeartbeatData
from ariane.protocol.command import Command, reply, request
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.send import SendHeaderV2, SendReply
from ariane.protocol.headers.transactions import CheckTransactionHeader, EndTransactionHeader
from ariane.protocol.message import decode_properties, encode_offset_id
from tests.unit.client.fake import FakeCluster, FakeServer, client_of, record, running, silent

SEND = RequestCode.SEND_MESSAGE_V2
END = RequestCode.END_TRANSACTION
HALF_ID = encode_offset_id(("127.0.0.1", 10911), 4096)
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


def prepared(command: Command) -> Command:
    queue_id = decode_header(SendHeaderV2, command.ext).queue_id
    stored = SendReply(
        queue_id=queue_id, message_id=HALF_ID, queue_offset=7, transaction_id="TX", region="R"
    )
    return reply(command, header=stored)


async def ended(broker: FakeServer, count: int = 1) -> EndTransactionHeader:
    return decode_header(EndTransactionHeader, (await broker.received(END, count))[-1].ext)


async def broker_of(cluster: FakeCluster, client: Client) -> FakeServer:
    for group in ("shop", "DEFAULT_PRODUCER"):
        client.checked_elsewhere(group)
    broker = cluster.brokers["a"]
    broker.answers[SEND] = prepared
    return broker


async def test_a_block_that_ends_well_commits() -> None:
    async with running("a", orders=4) as cluster, client_of(cluster) as client:
        broker = await broker_of(cluster, client)
        message = Message("orders", b"...", tags="A")
        async with client.transaction(message, group="shop") as transaction:
            assert not broker.of(END)
            assert transaction.receipt.offset_message_id == HALF_ID
        half = decode_header(SendHeaderV2, broker.of(SEND)[0].ext)
        assert (half.group, half.system_flag) == ("shop", 4)
        properties = decode_properties(half.properties or "")
        assert properties["TRAN_MSG"] == "true"
        assert properties["PGROUP"] == "shop"
        assert properties["TAGS"] == "A"
        assert properties["UNIQ_KEY"] == transaction.message_id
        assert await ended(broker) == EndTransactionHeader(
            topic="orders",
            group="shop",
            queue_offset=7,
            log_offset=4096,
            decision=COMMIT,
            answers_check=False,
            message_id=transaction.message_id,
            transaction_id="TX",
            broker_name="a",
        )


async def test_a_block_that_raises_rolls_back_and_raises() -> None:
    async with running("a", orders=4) as cluster, client_of(cluster) as client:
        broker = await broker_of(cluster, client)
        with pytest.raises(KeyError, match="no such order"):
            async with client.transaction("orders", b"..."):
                raise KeyError("no such order")
        header = await ended(broker)
        assert (header.decision, header.group) == (ROLLBACK, "DEFAULT_PRODUCER")


async def test_a_block_may_decide_by_itself() -> None:
    async with running("a", orders=4) as cluster, client_of(cluster) as client:
        broker = await broker_of(cluster, client)
        async with client.transaction("orders", b"...") as transaction:
            transaction.rollback()
        assert (await ended(broker)).decision == ROLLBACK
        assert transaction.state is TransactionState.ROLLBACK
        async with client.transaction("orders", b"...") as transaction:
            transaction.unknown()
        assert (await ended(broker, 2)).decision == UNKNOWN
        assert broker.of(END)[-1].is_one_way
        with pytest.raises(ValueError, match="after all"):
            async with client.transaction("orders", b"...") as transaction:
                transaction.unknown()
                raise ValueError("after all")
        assert (await ended(broker, 3)).decision == UNKNOWN


async def test_a_half_message_that_is_not_safe_is_taken_back() -> None:
    async with running("a", orders=4) as cluster, client_of(cluster) as client:
        broker = await broker_of(cluster, client)

        def late(command: Command) -> Command:
            answer = prepared(command)
            answer.code = ResponseCode.FLUSH_DISK_TIMEOUT
            return answer

        broker.answers[SEND] = late
        with pytest.raises(RequestFailed, match="rolled back before it began"):
            async with client.transaction("orders", b"..."):
                pytest.fail("the block must not run")
        assert (await ended(broker)).decision == ROLLBACK


async def test_a_commit_that_is_not_answered_is_left_to_the_checker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running("a", orders=4) as cluster, client_of(cluster) as client:
        broker = await broker_of(cluster, client)
        broker.answers[END] = silent
        async with client.transaction("orders", b"...", timeout=0.5):
            pass
        assert "the broker will ask" in caplog.text


async def test_a_commit_that_is_refused_is_an_error() -> None:
    async with running("a", orders=4) as cluster, client_of(cluster) as client:
        broker = await broker_of(cluster, client)
        broker.answers[END] = lambda command: reply(command, ResponseCode.ILLEGAL_OPERATION)
        with pytest.raises(RequestFailed, match="604"):
            async with client.transaction("orders", b"..."):
                pass
        with pytest.raises(KeyError):  # what the block raised comes first
            async with client.transaction("orders", b"..."):
                raise KeyError


async def test_what_a_transaction_cannot_be() -> None:
    async with running("a", orders=4) as cluster, client_of(cluster) as client:
        await broker_of(cluster, client)
        with pytest.raises(InvalidMessage, match="delayed"):
            client.transaction("orders", b"x", delay=1)
        transaction = client.transaction("orders", b"x")
        with pytest.raises(ClientError, match="not begun"):
            _ = transaction.receipt
        async with transaction:
            pass
        with pytest.raises(ClientError, match="used once"):
            async with transaction:
                pass


async def test_how_long_the_broker_waits_can_be_said() -> None:
    async with running("a", orders=4) as cluster, client_of(cluster) as client:
        broker = await broker_of(cluster, client)
        async with client.transaction("orders", b"x", check_after=89.5):
            pass
        properties = decode_properties(broker.of(SEND)[0].ext["i"])
        assert properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] == "90"


def check(*, group: str = "shop") -> Command:
    header = CheckTransactionHeader(
        topic="orders", queue_offset=9, log_offset=8192, message_id="ID", transaction_id="TX",
        offset_message_id="OFF", broker_name="a",
    )  # fmt: skip
    body = record(b"...", properties={"PGROUP": group, "UNIQ_KEY": "ID"})
    return request(RequestCode.CHECK_TRANSACTION_STATE, header, body, one_way=True)


DECISIONS = {
    "yes": (True, COMMIT),
    "no": (False, ROLLBACK),
    "who knows": (None, UNKNOWN),
    "committed": (TransactionState.COMMIT, COMMIT),
    "rolled back": (TransactionState.ROLLBACK, ROLLBACK),
    "not known": (TransactionState.UNKNOWN, UNKNOWN),
}


@pytest.mark.parametrize(("decision", "told"), DECISIONS.values(), ids=DECISIONS)
async def test_a_checker_answers_for_its_group(
    decision: TransactionState | bool | None, told: int
) -> None:
    async with running("a", orders=4) as cluster, client_of(cluster) as client:
        broker = cluster.brokers["a"]
        asked: list[StoredMessage] = []

        @client.checker("shop")
        async def became_of(message: StoredMessage) -> TransactionState | bool | None:
            asked.append(message)
            await asyncio.sleep(0)
            return decision

        (beat,) = await broker.received(RequestCode.HEART_BEAT)  # though nothing was sent yet
        groups = [one.group for one in fastjson.decode(beat.body, HeartbeatData).producers]
        assert groups == ["shop"]
        broker.tell_all(check(group="another"))
        broker.tell_all(check())
        header = await ended(broker)
        assert broker.of(END)[0].is_one_way
        assert [message.body for message in asked] == [b"..."]
        assert header == EndTransactionHeader(
            topic="orders",
            group="shop",
            queue_offset=9,
            log_offset=8192,
            decision=told,
            answers_check=True,
            message_id="ID",
            transaction_id="TX",
            broker_name="a",
        )


@pytest.mark.provokes("a checker failed")
@pytest.mark.parametrize("error", [LookupError(), StopIteration(), SystemExit(1), GeneratorExit()])
async def test_a_plain_function_may_check_and_one_that_fails_does_not_know(
    error: BaseException,
) -> None:
    async with running("a", orders=4) as cluster, client_of(cluster) as client:
        broker = cluster.brokers["a"]

        @client.checker("shop")
        def became_of(message: StoredMessage) -> bool:
            raise error

        await broker.received(RequestCode.HEART_BEAT)
        broker.tell_all(check())
        assert (await ended(broker)).decision == UNKNOWN


async def test_a_checker_registered_before_the_client_opens_is_known_when_it_has() -> None:
    async with running("a", orders=4) as cluster:
        client = Client(cluster.name_server.address, random=Random(1))

        @client.checker("shop")
        def became_of(message: StoredMessage) -> bool:
            return True

        async with client:
            await cluster.brokers["a"].received(RequestCode.HEART_BEAT)


async def test_a_group_has_one_checker_and_a_name() -> None:
    client = Client("127.0.0.1:9876")
    client.checker("shop")(lambda message: True)
    with pytest.raises(ClientError, match="already"):
        client.checker("shop")(lambda message: True)
    with pytest.raises(ClientError, match="group name"):
        client.checker("a b")
