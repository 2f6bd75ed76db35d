"""Spans as the real SDK gets them."""

import asyncio

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import messaging_attributes as semconv
from opentelemetry.trace import SpanKind, StatusCode

import ariane
from ariane import Start, sync
from ariane.codes import ResponseCode
from ariane.integrations.opentelemetry import Tracing
from ariane.testing import EmbeddedBroker


class Told:
    """A provider, and what it has been told."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]


@pytest.fixture
def told() -> Told:
    return Told()


async def test_a_trace_goes_from_send_to_handler(ariane_broker: EmbeddedBroker, told: Told) -> None:
    seen = asyncio.Queue[int]()

    async def bill(message: ariane.ReceivedMessage) -> None:
        await seen.put(trace.get_current_span().get_span_context().span_id)
        raise ariane.RetryLater(60)

    tracing = Tracing(provider=told.provider)
    async with ariane.Client(ariane_broker.name_server, middleware=[tracing]) as client:
        with told.tracer.start_as_current_span("shop") as shop:
            receipt = await client.send(
                "orders", "Äpfel", tags="fruit", keys=["k1", "k2"], sharding_key="user-1"
            )
        consumer = client.push_consumer("billing", bill, start=Start.FIRST)
        consumer.subscribe("orders")
        async with consumer, asyncio.timeout(30):
            span_id = await seen.get()

    [sent], [processed] = told.named("send orders"), told.named("process orders")
    assert sent.parent is not None
    assert sent.parent.span_id == shop.get_span_context().span_id
    assert processed.parent is not None
    assert processed.parent.span_id == sent.context.span_id
    assert processed.context.trace_id == sent.context.trace_id == shop.get_span_context().trace_id
    assert processed.context.span_id == span_id
    [message] = ariane_broker.published("orders")
    assert message.properties["traceparent"].split("-")[2] == f"{sent.context.span_id:016x}"

    assert (sent.kind, processed.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    common = {
        semconv.MESSAGING_SYSTEM: semconv.MessagingSystemValues.ROCKETMQ.value,
        semconv.MESSAGING_DESTINATION_NAME: "orders",
        semconv.MESSAGING_ROCKETMQ_NAMESPACE: "",
        semconv.MESSAGING_MESSAGE_ID: receipt.message_id,
        semconv.MESSAGING_MESSAGE_BODY_SIZE: 6,
        semconv.MESSAGING_ROCKETMQ_MESSAGE_TAG: "fruit",
        semconv.MESSAGING_ROCKETMQ_MESSAGE_KEYS: ("k1", "k2"),
        semconv.MESSAGING_ROCKETMQ_MESSAGE_GROUP: "user-1",
    }
    assert dict(sent.attributes or {}) == common | {
        semconv.MESSAGING_OPERATION_NAME: "send",
        semconv.MESSAGING_OPERATION_TYPE: semconv.MessagingOperationTypeValues.SEND.value,
        semconv.MESSAGING_ROCKETMQ_CLIENT_GROUP: "DEFAULT_PRODUCER",
        semconv.MESSAGING_ROCKETMQ_MESSAGE_TYPE: "fifo",
        semconv.MESSAGING_DESTINATION_PARTITION_ID: f"broker-a:{receipt.queue.queue_id}",
    }
    assert dict(processed.attributes or {}) == common | {
        semconv.MESSAGING_OPERATION_NAME: "process",
        semconv.MESSAGING_OPERATION_TYPE: semconv.MessagingOperationTypeValues.PROCESS.value,
        semconv.MESSAGING_ROCKETMQ_CLIENT_GROUP: "billing",
        semconv.MESSAGING_CONSUMER_GROUP_NAME: "billing",
        semconv.MESSAGING_ROCKETMQ_CONSUMPTION_MODEL: "clustering",
        semconv.MESSAGING_DESTINATION_PARTITION_ID: f"broker-a:{receipt.queue.queue_id}",
        "error.type": "RetryLater",
    }
    assert (sent.status.status_code, processed.status.status_code) == (
        StatusCode.UNSET,
        StatusCode.ERROR,
    )


async def test_kinds_of_messages_and_errors_are_told(
    ariane_broker: EmbeddedBroker, told: Told
) -> None:
    tracing = Tracing(provider=told.provider, namespace="shop")
    async with ariane.Client(ariane_broker.name_server, middleware=[tracing]) as client:
        client.checker("DEFAULT_PRODUCER")(lambda message: True)
        await client.send("later", b"x", delay_level=3)
        await client.send("later", b"x", deliver_at=ariane_broker.now)
        async with client.transaction("later", b"x"):
            pass
        ariane_broker.fail("send", times=None, code=ResponseCode.MESSAGE_ILLEGAL)
        with pytest.raises(ariane.MessageRefused):
            await client.send("later", b"x")
    found = [dict(span.attributes or {}) for span in told.named("send later")]
    types = [each[semconv.MESSAGING_ROCKETMQ_MESSAGE_TYPE] for each in found]
    assert types == ["delay", "delay", "transaction", "normal"]
    assert found[0][semconv.MESSAGING_ROCKETMQ_MESSAGE_DELAY_TIME_LEVEL] == 3
    due_ms = round(ariane_broker.now.timestamp() * 1000)
    assert found[1][semconv.MESSAGING_ROCKETMQ_MESSAGE_DELIVERY_TIMESTAMP] == due_ms
    assert {each[semconv.MESSAGING_ROCKETMQ_NAMESPACE] for each in found} == {"shop"}
    assert found[3]["error.type"] == "MessageRefused"


def test_threads_go_on_in_their_own_trace(ariane_broker: EmbeddedBroker, told: Told) -> None:
    tracing = Tracing(provider=told.provider)
    with (
        sync.Client(ariane_broker.name_server, middleware=[tracing]) as client,
        told.tracer.start_as_current_span("shop") as shop,
    ):
        client.send("orders", b"x")
    [sent] = told.named("send orders")
    assert sent.parent is not None
    assert sent.parent.span_id == shop.get_span_context().span_id
