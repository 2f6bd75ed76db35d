"""What the driver learns from a name server and a broker, both real and in this process."""

from collections.abc import Iterator

import pytest

from ariane.client.routes import TopicRoute
from ariane.errors import ConfigError, ConnectionLost, RouteNotFound
from ariane.protocol.bodies import TopicStats
from ariane.spark.bytes.contract import AccessOptions, QueueBounds
from ariane.spark.cluster import BrokerCluster
from ariane.spark.offsets import Queue
from ariane.spark.options import Selection
from ariane.sync import Client
from ariane.testing import EmbeddedBroker

ORDERS = Selection(topics=("orders",))


@pytest.fixture
def client(ariane_broker: EmbeddedBroker) -> Iterator[Client]:
    with Client(ariane_broker.name_server) as client:
        client.admin.create_topic("orders", write_queue_count=2)
        yield client


@pytest.fixture
def cluster(ariane_broker: EmbeddedBroker) -> Iterator[BrokerCluster]:
    access = AccessOptions(name_servers=(ariane_broker.name_server,), timeout_s=3.0, retries=0)
    cluster = BrokerCluster(access)
    yield cluster
    cluster.close()


def queue(number: int, topic: str = "orders") -> Queue:
    return Queue(topic, "broker-a", number)


def send(client: Client, number: int, *bodies: bytes, topic: str = "orders") -> None:
    queues = client.pull_consumer().queues(topic)
    chosen = next(one for one in queues if one.queue_id == number)
    for body in bodies:
        client.send(topic, body, queue=chosen)


def test_queues_and_what_can_be_read_of_them(client: Client, cluster: BrokerCluster) -> None:
    send(client, 1, b"a", b"b")
    survey = cluster.survey(ORDERS)
    assert survey.layout == {queue(0): QueueBounds(0, 0), queue(1): QueueBounds(0, 2)}
    assert survey.away == frozenset()


def test_changes_are_seen_at_once(client: Client, cluster: BrokerCluster) -> None:
    cluster.survey(ORDERS)
    client.admin.create_topic("orders", write_queue_count=3)
    assert set(cluster.survey(ORDERS).layout) == {queue(0), queue(1), queue(2)}
    client.admin.create_topic("orders", write_queue_count=1)
    known = [queue(0), queue(1)]
    survey = cluster.survey(ORDERS, known=known)
    assert set(survey.layout) == {queue(0)}
    assert survey.away == frozenset()  # the broker is there; the queue is not


def test_a_topic_that_is_not_there_is_an_error_unless_it_was_read_before(
    client: Client, cluster: BrokerCluster
) -> None:
    with pytest.raises(RouteNotFound, match="'payments' does not exist"):
        cluster.survey(Selection(topics=("payments",)))
    assert cluster.survey(Selection(topics=("payments",)), may_miss=True).layout == {}
    client.admin.delete_topic("orders")
    survey = cluster.survey(ORDERS, known=[queue(0)])
    assert (dict(survey.layout), survey.away) == ({}, frozenset())


def test_topics_by_pattern_are_those_of_users(client: Client, cluster: BrokerCluster) -> None:
    client.admin.create_topic("orders-2", write_queue_count=1)
    topics = {one.topic for one in cluster.survey(Selection(pattern=".*")).layout}
    assert topics == {"orders", "orders-2"}
    assert cluster.survey(Selection(pattern="%DLQ%billing")).layout == {}


def test_queues_by_themselves(client: Client, cluster: BrokerCluster) -> None:
    assert set(cluster.survey(Selection(queues=frozenset({queue(1)}))).layout) == {queue(1)}
    with pytest.raises(ConfigError, match="queue 9"):
        cluster.survey(Selection(queues=frozenset({queue(1), queue(9)})))
    some = cluster.survey(Selection(queues=frozenset({queue(1), queue(9)})), may_miss=True)
    assert set(some.layout) == {queue(1)}


def test_offsets_by_time(
    ariane_broker: EmbeddedBroker, client: Client, cluster: BrokerCluster
) -> None:
    send(client, 0, b"early")
    ariane_broker.advance(100)
    moment_ms = round(ariane_broker.now.timestamp() * 1000)
    send(client, 0, b"late", b"later")
    at = cluster.offsets_at({queue(0): moment_ms, queue(1): moment_ms})
    assert at == {queue(0): 1, queue(1): 0}
    beyond = cluster.offsets_at({queue(0): moment_ms + 1_000_000})
    assert beyond == {queue(0): 3}  # the end: no message is as young


def test_sizes_by_a_sample_of_both_ends(client: Client, cluster: BrokerCluster) -> None:
    send(client, 0, *[b"x" * 1000] * 4)
    mean = cluster.record_bytes({queue(0): (0, 4)})[queue(0)]
    assert 1000 < mean < 1400
    send(client, 1, b"x" * 1000, *[b"x" * 3000] * 79)
    assert cluster.record_bytes({queue(1): (0, 80)})[queue(1)] > 2 * mean


def test_progress_is_mirrored_to_a_group(client: Client, cluster: BrokerCluster) -> None:
    send(client, 0, b"a", b"b")
    cluster.mirror("spark-orders", {queue(0): 2, queue(1): 0, queue(0, "gone"): 7})
    consumer = client.pull_consumer("spark-orders")
    there = consumer.queues("orders")
    assert [consumer.committed(one) for one in there] == [2, 0]


def test_progress_that_cannot_be_mirrored_troubles_nobody(
    ariane_broker: EmbeddedBroker,
    client: Client,
    cluster: BrokerCluster,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster.survey(ORDERS)
    ariane_broker.stop()
    cluster.mirror("spark-orders", {queue(0): 7, Queue("payments", "broker-a", 0): 1})
    assert "not mirrored group=spark-orders" in caplog.text


def test_a_queue_that_a_broker_does_not_report_is_asked_about(
    client: Client, cluster: BrokerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of queues that are only read any more, by Apache's brokers before 5."""
    send(client, 1, b"a", b"b")
    whole = cluster._stats

    async def partly(route: TopicRoute, broker: str) -> TopicStats:
        stats = await whole(route, broker)
        return TopicStats(
            offsets={one: at for one, at in stats.offsets.items() if not one.queue_id}
        )

    monkeypatch.setattr(cluster, "_stats", partly)
    assert cluster.survey(ORDERS).layout == {
        queue(0): QueueBounds(0, 0),
        queue(1): QueueBounds(0, 2),
    }


def test_how_old_queues_are(
    ariane_broker: EmbeddedBroker, client: Client, cluster: BrokerCluster
) -> None:
    send(client, 1, b"a", b"b")
    first, last = ariane_broker.published("orders")
    assert cluster.survey(ORDERS).stored_ms == {"broker-a": last.stored_at_ms}
    assert cluster.oldest_ms([queue(0), queue(1)]) == {queue(0): -1, queue(1): first.stored_at_ms}
    assert cluster.oldest_ms([queue(0, "nowhere")]) == {}


def test_a_broker_that_is_away_is_waited_for(
    ariane_broker: EmbeddedBroker, client: Client, cluster: BrokerCluster
) -> None:
    assert set(cluster.survey(ORDERS, known=[queue(0)]).layout) == {queue(0), queue(1)}
    ariane_broker.restart(kill=True)  # the connection we had is gone
    assert set(cluster.survey(ORDERS, known=[queue(0)]).layout) == {queue(0), queue(1)}


def test_nobody_there() -> None:
    cluster = BrokerCluster(AccessOptions(name_servers=("127.0.0.1:1",), retries=0))
    try:
        with pytest.raises(ConnectionLost, match="no name server answers"):
            cluster.survey(ORDERS)
    finally:
        cluster.close()
