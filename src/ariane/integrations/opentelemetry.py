"""Spans of OpenTelemetry for sends and for handlers; the extra `otel`.

A send writes W3C's `traceparent` into the message's properties, and the handler's span goes on in
the same trace. Names and attributes are those of the semantic conventions for messaging, and for
RocketMQ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Final

from msgspec.structs import replace
from opentelemetry import propagate, trace
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider

from ariane.client.messages import Message, body_of, keys_of
from ariane.client.middleware import Middleware, Outgoing
from ariane.client.received import PolledMessage
from ariane.protocol.message_queue import MessageQueue

SYSTEM: Final = "rocketmq"
CLUSTERING: Final = "clustering"

Attributes = dict[str, str | int | list[str]]


class Tracing(Middleware):
    """Give it to a client: `Client(..., middleware=[Tracing()])`."""

    def __init__(
        self,
        *,
        provider: TracerProvider | None = None,
        propagator: TextMapPropagator | None = None,
        namespace: str = "",  # of RocketMQ's resources, where there are some
    ) -> None:
        # Of an error only the type is noted, as the conventions ask: what it says may be private.
        self._begin = partial(
            trace.get_tracer("ariane", tracer_provider=provider).start_as_current_span,
            record_exception=False,
            set_status_on_exception=False,
        )
        self._propagator = propagator or propagate.get_global_textmap()
        self._namespace = namespace

    @contextmanager
    def sending(self, outgoing: Outgoing) -> Iterator[None]:
        """A span for the send, which the message carries on."""
        message = outgoing.message
        attributes = self._attributes("send", message.topic) | _sent(outgoing)
        name = f"send {message.topic}"
        with self._begin(name, None, SpanKind.PRODUCER, attributes) as span, _noted(span):
            carried: dict[str, str] = {}
            self._propagator.inject(carried)
            properties = {**message.properties, **{k: v for k, v in carried.items() if v}}
            outgoing.message = replace(message, properties=properties)
            yield
            if (receipt := outgoing.receipt) is not None:
                span.set_attribute("messaging.message.id", receipt.message_id)
                span.set_attribute("messaging.destination.partition.id", _place(receipt.queue))

    @contextmanager
    def handling(self, message: PolledMessage, group: str) -> Iterator[None]:
        """A span for the handler, beneath the one that the message was sent in."""
        attributes = self._attributes("process", message.topic) | _received(message, group)
        name, parent = f"process {message.topic}", self._propagator.extract(message.properties)
        with self._begin(name, parent, SpanKind.CONSUMER, attributes) as span, _noted(span):
            yield

    def _attributes(self, operation: str, topic: str) -> Attributes:
        return {
            "messaging.system": SYSTEM,
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
            "messaging.destination.name": topic,
            "messaging.rocketmq.namespace": self._namespace,
        }


@contextmanager
def _noted(span: Span) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        span.set_attribute("error.type", type(error).__qualname__)
        span.set_status(Status(StatusCode.ERROR))
        raise


def _sent(outgoing: Outgoing) -> Attributes:
    message = outgoing.message
    found: Attributes = {
        "messaging.rocketmq.client_group": outgoing.group,
        "messaging.rocketmq.message.type": _type_of(message, is_half=outgoing.is_half),
        "messaging.message.body.size": len(body_of(message)),
    }
    if isinstance(message.deliver_at, datetime):
        moment_ms = round(message.deliver_at.timestamp() * 1000)
        found["messaging.rocketmq.message.delivery_timestamp"] = moment_ms
    if message.delay_level:
        found["messaging.rocketmq.message.delay_time_level"] = message.delay_level
    return found | _marks(message.tags, list(keys_of(message)), message.sharding_key)


def _received(message: PolledMessage, group: str) -> Attributes:
    found: Attributes = {
        "messaging.consumer.group.name": group,
        "messaging.rocketmq.client_group": group,
        "messaging.rocketmq.consumption_model": CLUSTERING,
        "messaging.message.id": message.message_id,
        "messaging.message.body.size": len(message.body),
        "messaging.destination.partition.id": _place(message.queue),
    }
    return found | _marks(message.tags, message.keys, message.sharding_key)


def _marks(tag: str | None, keys: list[str], sharding_key: str | None) -> Attributes:
    found: Mapping[str, str | list[str] | None] = {
        "messaging.rocketmq.message.tag": tag,
        "messaging.rocketmq.message.keys": keys,
        "messaging.rocketmq.message.group": sharding_key,
    }
    return {name: value for name, value in found.items() if value}


def _type_of(message: Message, *, is_half: bool) -> str:
    if is_half:
        return "transaction"
    if message.is_delayed:
        return "delay"
    return "fifo" if message.sharding_key else "normal"


def _place(queue: MessageQueue) -> str:
    return f"{queue.broker_name}:{queue.queue_id}"
