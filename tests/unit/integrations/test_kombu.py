"""The real kombu, and a real Celery application with its worker in this process."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.signals import setup_logging
from kombu import Connection, Exchange, Queue, pools

from ariane.integrations.kombu import due_of, topic_of
from ariane.testing import EmbeddedBroker


@pytest.fixture
def flying(ariane_broker: EmbeddedBroker) -> Iterator[None]:
    """A broker's time that passes by itself, a second every few milliseconds."""
    stopped = threading.Event()

    def fly() -> None:
        while not stopped.wait(0.01):
            ariane_broker.advance(1)

    thread = threading.Thread(target=fly)
    thread.start()
    yield
    stopped.set()
    thread.join()


@pytest.fixture
def connection(ariane_broker: EmbeddedBroker) -> Iterator[Connection]:
    with Connection(f"rocketmq://{ariane_broker.name_server}") as connection:
        yield connection


@pytest.mark.usefixtures("flying")
def test_messages_are_sent_got_and_settled(
    ariane_broker: EmbeddedBroker, connection: Connection
) -> None:
    queue = connection.SimpleQueue("mail")
    for text in ("a", "b"):
        queue.put({"text": text})
    assert queue.qsize() == 2
    got = [queue.get(timeout=30) for _ in range(2)]
    assert sorted(message.payload["text"] for message in got) == ["a", "b"]
    got[0].ack()
    got[1].requeue()
    again = queue.get(timeout=30)
    assert again.payload == got[1].payload
    again.reject()
    with pytest.raises(queue.Empty):
        queue.get(timeout=0.1)
    assert queue.qsize() == 0
    queue.close()


@pytest.mark.usefixtures("flying")
def test_what_was_not_settled_comes_back(ariane_broker: EmbeddedBroker) -> None:
    for is_first in (True, False):
        with Connection(f"rocketmq://{ariane_broker.name_server}") as connection:
            queue = connection.SimpleQueue("mail")
            if is_first:
                queue.put("x")
            assert queue.get(timeout=30).payload == "x"


@pytest.mark.usefixtures("flying")
def test_queues_are_purged_and_deleted(
    ariane_broker: EmbeddedBroker, connection: Connection
) -> None:
    queue = Queue("a.b@c", Exchange("letters"), routing_key="to me")
    bound = queue(connection.default_channel)
    bound.declare()
    producer = connection.Producer()
    for number in range(3):
        producer.publish(number, exchange="letters", routing_key="to me")
    assert len(ariane_broker.published("a-b-c")) == 3
    assert bound.get(no_ack=True).payload in range(3)
    assert bound.purge() == 2
    assert bound.get() is None
    bound.delete()
    with ariane_broker.blocking_client() as client:
        assert "a-b-c" not in client.admin.topics()


def test_consumers_may_do_without_acknowledging(
    ariane_broker: EmbeddedBroker, connection: Connection
) -> None:
    got = threading.Event()
    queue = Queue("mail", Exchange("mail"), routing_key="mail")
    with connection.Consumer(queue, no_ack=True, on_message=lambda message: got.set()):
        connection.Producer().publish("x", exchange="mail", routing_key="mail")
        connection.drain_events(timeout=30)
    assert got.is_set()
    assert connection.SimpleQueue(queue).qsize() == 0


def leave_logging_alone(**named: object) -> None:
    """What Celery calls in place of taking over the root logger, which is the test run's."""


@pytest.fixture
def app(ariane_broker: EmbeddedBroker) -> Iterator[Celery]:
    setup_logging.connect(leave_logging_alone)
    app = Celery(
        "shop", broker=f"rocketmq://{ariane_broker.name_server}", backend="cache+memory://"
    )
    app.conf.worker_enable_remote_control = False
    app.conf.broker_connection_retry_on_startup = True
    yield app
    app.close()
    pools.reset()
    setup_logging.disconnect(leave_logging_alone)


@pytest.mark.usefixtures("flying")
@pytest.mark.filterwarnings("ignore")  # of Celery's own making
def test_celery_runs_tasks_and_tries_them_again(app: Celery) -> None:
    tries = []

    @app.task(bind=True, max_retries=2)
    def add(task: object, a: int, b: int) -> int:
        tries.append(a)
        if len(tries) < 3:
            raise task.retry(countdown=0)  # type: ignore[attr-defined]
        return a + b

    with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=60):
        assert add.delay(1, 2).get(timeout=60) == 3
    assert tries == [1, 1, 1]


@pytest.mark.filterwarnings("ignore")
def test_celery_has_a_task_wait_at_the_broker(app: Celery, ariane_broker: EmbeddedBroker) -> None:
    @app.task
    def remind() -> str:
        return "done"

    result = remind.apply_async(countdown=3600)
    assert ariane_broker.published("celery") == []
    ariane_broker.advance(3601)
    [message] = ariane_broker.published("celery")
    assert message.keys == [result.id]


def test_a_time_is_told_as_far_as_a_broker_keeps_it() -> None:
    now = datetime(2026, 11, 18, 12, tzinfo=UTC)
    soon = now + timedelta(hours=1)
    assert due_of({"headers": {"eta": soon.isoformat()}}, now) == soon
    assert due_of({"headers": {"eta": soon.replace(tzinfo=None).isoformat()}}, now) == soon
    assert due_of({"headers": {"eta": (now + timedelta(days=4)).isoformat()}}, now) is None
    assert due_of({"headers": {"eta": now.isoformat()}}, now) is None
    assert due_of({"headers": {}}, now) is due_of({}, now) is None
    assert topic_of("celery@host.pidbox") == "celery-host-pidbox"
