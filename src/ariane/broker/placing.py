"""How a message gets into the log, whoever sends it: a producer, a consumer, or the broker itself.

`put` is for messages that may ask to come later: they are first led aside, to the topic that keeps
them until then. `place` is for messages whose time has come; it looks at nothing, and so a message
that still carries its old wishes in its properties is not delayed a second time.
"""

from __future__ import annotations

from collections.abc import Mapping

from ariane.broker import timed
from ariane.broker.delay_levels import level_of, set_aside
from ariane.broker.state import BrokerState
from ariane.protocol.message import stored_properties_of
from ariane.store.messages import NewMessage, Placed


def put(state: BrokerState, message: NewMessage, *, again: bool = False) -> Placed:
    """Place a message where it goes first: in its topic, or aside if it asks to come later."""
    return place(state, route(state, message), again=again)


def place(state: BrokerState, message: NewMessage, *, again: bool = False) -> Placed:
    """Append a message exactly as it is, count it, and wake whoever waits for it.

    One that the log held before may be larger than is allowed by now (`again`).
    """
    started_s = state.clock.monotonic_s()
    append = state.store.append_again if again else state.store.append
    placed = append(message)
    state.flow.append_took(state.clock.monotonic_s() - started_s)
    state.stats.put_to(message.topic).add(1, placed.size)
    state.arrived(message.topic, message.queue_id)
    return placed


def route(
    state: BrokerState, message: NewMessage, properties: Mapping[str, str] | None = None
) -> NewMessage:
    """The message as it is stored first; raises RequestRejected for a wish that cannot be met.

    `properties` are the message's, for whoever has read them already.
    """
    if b"DELAY" not in message.properties and b"TIMER_" not in message.properties:
        return message  # nearly all of them
    if properties is None:
        properties = stored_properties_of(message.properties)
    if level_of(properties) > 0:
        return set_aside(message, properties, state.store_config)
    return timed.route(state, message, properties)
