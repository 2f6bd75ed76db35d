"""Blocking sends on sockets of their own, against brokers that answer well, badly or not at all."""

import threading
from collections.abc import Iterator

import pytest

from ariane.client.direct import IDLE_S, DirectLines
from ariane.client.loop_thread import LoopThread
from ariane.client.messages import SendStatus
from ariane.client.sync import Client
from ariane.clock import ManualClock
from ariane.codes import RequestCode, ResponseCode
from ariane.errors import (
    BrokerBusy,
    ClientError,
    ConnectionLost,
    MessageRefused,
    RequestTimeout,
)
from ariane.protocol.command import Command, reply
from ariane.protocol.message import decode_properties
from tests.unit.client.fake import Answer, FakeCluster, FakeServer, refusing, silent, stored

SEND = RequestCode.SEND_MESSAGE_V2


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    """Where the cluster runs, since the test's thread blocks."""
    made = LoopThread()
    yield made
    made.stop()


@pytest.fixture
def cluster(thread: LoopThread) -> Iterator[FakeCluster]:
    async def start() -> FakeCluster:
        cluster = FakeCluster(["a"])
        cluster.queue_counts["orders"] = 2
        await cluster.start()
        return cluster

    made = thread.run(start())
    yield made
    thread.run(made.stop())


@pytest.fixture
def broker(cluster: FakeCluster) -> FakeServer:
    return cluster.brokers["a"]


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[Client]:
    with Client(cluster.name_server.address) as client:
        yield client


def test_sends_use_one_line_over_and_over(client: Client, broker: FakeServer) -> None:
    receipts = [client.send("orders", b"%d" % number) for number in range(10)]
    assert len({receipt.message_id for receipt in receipts}) == 10
    assert {receipt.queue.queue_id for receipt in receipts} == {0, 1}
    assert len(client._lines._idle[broker.address]) == 1


def test_threads_have_a_line_each(client: Client, broker: FakeServer) -> None:
    ready, go = threading.Barrier(4), threading.Event()
    broker.answers[SEND] = _waiting_for(go)
    answers: list[str] = []

    def work() -> None:
        ready.wait()
        answers.append(client.send("orders", b"x").message_id)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    ready.wait()
    go.set()
    for thread in threads:
        thread.join()
    assert len(set(answers)) == 3


def _waiting_for(go: threading.Event) -> Answer:
    def answer(command: Command) -> Command:
        go.wait(10)
        return stored(command)

    return answer


def test_an_answer_that_is_not_plain_counts_all_the_same(
    client: Client, broker: FakeServer
) -> None:
    def late(command: Command) -> Command:
        answer = stored(command)
        answer.code = ResponseCode.FLUSH_DISK_TIMEOUT
        return answer

    broker.answers[SEND] = late
    assert client.send("orders", b"x").status is SendStatus.FLUSH_DISK_TIMEOUT


def test_what_no_broker_takes_is_refused_once(client: Client, broker: FakeServer) -> None:
    broker.answers[SEND] = refusing(ResponseCode.MESSAGE_ILLEGAL)
    with pytest.raises(MessageRefused, match="after one attempt"):
        client.send("orders", b"x")
    assert len(broker.of(SEND)) == 1


def test_the_courier_goes_on_where_the_first_attempt_failed(
    client: Client, broker: FakeServer
) -> None:
    failures = [ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY]

    def fail_twice(command: Command) -> Command:
        return reply(command, failures.pop(0)) if failures else stored(command)

    broker.answers[SEND] = fail_twice
    receipt = client.send("orders", b"x")
    ids = [decode_properties(command.ext["i"])["UNIQ_KEY"] for command in broker.of(SEND)]
    assert ids == [receipt.message_id] * 3


def test_no_retries_means_one_attempt(client: Client, broker: FakeServer) -> None:
    broker.answers[SEND] = refusing(ResponseCode.SYSTEM_BUSY)
    with pytest.raises(BrokerBusy):
        client.producer(retries=0).send("orders", b"x")
    assert len(broker.of(SEND)) == 1


def test_a_silent_broker_is_given_up_when_time_is_up(client: Client, broker: FakeServer) -> None:
    broker.answers[SEND] = silent
    with pytest.raises(RequestTimeout, match="may have been stored"):
        client.send("orders", b"x", timeout=0.05)
    with pytest.raises(ClientError):
        client.send("orders", b"x", timeout=-1)
    broker.answers[SEND] = stored
    assert client.send("orders", b"x", timeout=5).status is SendStatus.OK  # on another line


def test_a_line_that_broke_is_replaced(client: Client, broker: FakeServer) -> None:
    client.send("orders", b"x")

    def dies_once(command: Command) -> None:
        broker.answers[SEND] = stored
        broker.drop_all()

    broker.answers[SEND] = dies_once
    assert client.send("orders", b"x").status is SendStatus.OK


def test_a_line_that_was_silent_for_long_is_not_used_again(
    cluster: FakeCluster, broker: FakeServer
) -> None:
    clock = ManualClock()
    with Client(cluster.name_server.address) as client:
        client._lines.clock = clock
        client.send("orders", b"x")
        (first,) = client._lines._idle[broker.address]
        clock.advance(IDLE_S)
        client.send("orders", b"x")
        (second,) = client._lines._idle[broker.address]
        assert second is not first


def test_a_broker_that_is_gone_is_said_to_be(
    cluster: FakeCluster, thread: LoopThread, broker: FakeServer
) -> None:
    with Client(cluster.name_server.address) as client:
        client.send("orders", b"x")
        thread.run(broker.stop())
        with pytest.raises(ConnectionLost, match="is the broker running"):
            client.send("orders", b"x")


def test_an_answer_to_another_question_is_not_believed(client: Client, broker: FakeServer) -> None:
    def confused(command: Command) -> Command:
        answer = stored(command)
        answer.opaque += 1
        broker.answers[SEND] = stored
        return answer

    broker.answers[SEND] = confused
    assert client.send("orders", b"x").status is SendStatus.OK
    assert len(broker.of(SEND)) == 2


def test_long_answers_are_read_whole(client: Client, broker: FakeServer) -> None:
    def wordy(command: Command) -> Command:
        answer = stored(command)
        answer.ext["padding"] = "x" * 40_000
        return answer

    broker.answers[SEND] = wordy
    assert client.send("orders", b"x").queue_offset == 7


def test_a_closed_client_says_so(cluster: FakeCluster) -> None:
    client = Client(cluster.name_server.address)
    client.send("orders", b"x")
    client.close()
    with pytest.raises(ClientError, match="closed"):
        client.send("orders", b"x")


def test_a_line_given_back_after_the_lines_were_closed_is_closed(
    client: Client, broker: FakeServer, thread: LoopThread
) -> None:
    client.send("orders", b"known")
    asked, may_answer = threading.Event(), threading.Event()

    def late(command: Command) -> Command | None:
        asked.set()
        may_answer.wait(10)
        return stored(command)

    broker.answers[SEND] = late
    sending = threading.Thread(target=client.send, args=("orders", b"x"))
    sending.start()
    assert asked.wait(10)
    client._lines.close()
    may_answer.set()
    sending.join(10)
    assert not any(client._lines._idle.values())


def test_lines_are_closed_while_a_thread_gives_back_one_to_another_broker() -> None:
    lines = DirectLines(ManualClock())
    closed: list[str] = []

    class GivenBack:
        def __init__(self, address: str) -> None:
            self.address = address

        def close(self) -> None:
            lines._idle.setdefault(f"{self.address}0", [])  # as a thread may at any time
            closed.append(self.address)

    lines._idle.update({address: [GivenBack(address)] for address in ("a:1", "b:1")})  # type: ignore[dict-item]
    lines.close()
    assert closed == ["a:1", "b:1"]
