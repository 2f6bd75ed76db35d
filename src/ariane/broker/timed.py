"""Messages that ask for a time: when that is, where they wait, and the handle that recalls one.

A time is asked for by `TIMER_DELAY_SEC`, `TIMER_DELAY_MS` or `TIMER_DELIVER_MS`; the first of these
counts. The message waits in the timer topic with its own topic and queue noted; the wheel in the
store delivers it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ariane.broker.messages import TIMER_KEYS, MessageIllegal
from ariane.broker.state import BrokerState
from ariane.codes import ResponseCode
from ariane.errors import RequestRejected
from ariane.protocol.properties import REAL_QUEUE_ID, REAL_TOPIC, UNIQUE_KEY, amended_properties
from ariane.protocol.recall_handle import RecallHandle
from ariane.store.messages import NewMessage
from ariane.store.timer_wheel import slot_of
from ariane.topics import RETRY_PREFIX, TIMER_TOPIC

SLOT_KEY: Final = "TIMER_OUT_MS"
DELETE_KEY: Final = "TIMER_DEL_UNIQKEY"
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")


def is_timed(message: NewMessage, properties: Mapping[str, str]) -> bool:
    """Whether the message asks for a time and has not been led aside for it yet."""
    return (
        message.topic != TIMER_TOPIC
        and SLOT_KEY not in properties
        and any(key in properties for key in TIMER_KEYS)
    )


def route(state: BrokerState, message: NewMessage, properties: Mapping[str, str]) -> NewMessage:
    """The message as it waits, or as it is if its time has come; refused if it cannot be met."""
    if not is_timed(message, properties):
        return message
    config = state.store_config
    if not config.timer_enabled:
        raise RequestRejected(
            "accurate timer message is not enabled, timerWheelEnable is false",
            ResponseCode.SYSTEM_ERROR,
        )
    now_ms = state.clock.wall_ms()
    deliver_ms = deliver_time(properties, now_ms)
    delay_max_ms = config.timer_delay_max_s * 1000
    if deliver_ms is None or deliver_ms - now_ms > delay_max_ms:
        raise _illegal(delay_max_ms)
    if deliver_ms <= now_ms:
        if DELETE_KEY in properties:
            raise _illegal(delay_max_ms)
        return message
    slot_ms = slot_of(deliver_ms, config.timer_precision_ms)
    waiting = state.store.timer.count_at(slot_ms)
    if waiting >= config.timer_slot_messages_max:
        raise RequestRejected(
            f"timer message is under flow control: {waiting} messages wait for the same slot and"
            f" {config.timer_slot_messages_max} may (timerCongestNumEachSlot)",
            ResponseCode.SYSTEM_ERROR,
        )
    state.timer.soon()
    return NewMessage(
        topic=TIMER_TOPIC,
        queue_id=0,
        body=message.body,
        properties=_aside(message, properties, slot_ms),
        born_host=message.born_host,
        born_at_ms=message.born_at_ms,
        flag=message.flag,
        system_flag=message.system_flag,
        reconsume_times=message.reconsume_times,
        prepared_offset=message.prepared_offset,
    )


def deliver_time(properties: Mapping[str, str], now_ms: int) -> int | None:
    """When the message asks to be delivered; None for what is not a number."""
    key = next(key for key in TIMER_KEYS if key in properties)
    if _NUMBER.fullmatch(properties[key]) is None:
        return None
    number = int(properties[key])
    if key == "TIMER_DELAY_SEC":
        return now_ms + number * 1000
    return now_ms + number if key == "TIMER_DELAY_MS" else number


def _aside(message: NewMessage, properties: Mapping[str, str], slot_ms: int) -> bytes:
    marks = {
        SLOT_KEY: str(slot_ms),
        REAL_TOPIC: message.topic,
        REAL_QUEUE_ID: str(message.queue_id),
    }
    if REAL_TOPIC in properties or REAL_QUEUE_ID in properties:
        return amended_properties(message.properties, marks)
    text = "".join(f"{name}\x01{value}\x02" for name, value in marks.items()).encode()
    separator = b"" if message.properties.endswith(b"\x02") or not message.properties else b"\x02"
    return message.properties + separator + text


def _illegal(delay_max_ms: int) -> MessageIllegal:
    return MessageIllegal(
        "timer message illegal, the delay time should not be bigger than the max delay"
        f" {delay_max_ms}ms; or if set del msg, the delay time should be bigger than the current"
        " time"
    )


def recall_handle_of(message: NewMessage, broker_name: str) -> str | None:
    """The handle of a message as it was placed; None if it does not wait for a time."""
    if message.topic != TIMER_TOPIC:
        return None
    slot_text, topic = _value_of(message, SLOT_KEY), _value_of(message, REAL_TOPIC)
    if not topic or topic.startswith(RETRY_PREFIX) or _NUMBER.fullmatch(slot_text) is None:
        return None
    return RecallHandle(
        topic=topic,
        broker_name=broker_name,
        deliver_at_ms=int(slot_text) + 1,  # in the slot, whose messages are due after its time
        message_id=_value_of(message, UNIQUE_KEY),
    ).encode()


def _value_of(message: NewMessage, name: str) -> str:
    """One property, without reading them all; the last of that name, or nothing."""
    text = b"\x02" + message.properties
    mark = b"\x02%s\x01" % name.encode()
    at = text.rfind(mark)
    if at < 0:
        return ""
    first = at + len(mark)
    end = text.find(b"\x02", first)
    return text[first : end if end >= 0 else None].decode(errors="replace")
