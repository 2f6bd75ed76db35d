"""`config/consumerOrderInfo.json`: what is out of queues popped in order, in Apache's form."""

from __future__ import annotations

from typing import Final

import msgspec

from ariane.broker.persistence import load as load_file
from ariane.broker.pop.order import OrderInfo, Orders, Place
from ariane.disk import Disk
from ariane.protocol import fastjson

PATH: Final = "config/consumerOrderInfo.json"


class OrderTable(msgspec.Struct, frozen=True, kw_only=True):
    """The file: "topic@group" -> queue id -> what is out."""

    table: dict[str, dict[int, OrderInfo]] = {}


def encode(orders: Orders) -> bytes:
    """The file's text."""
    table: dict[str, dict[int, OrderInfo]] = {}
    for place, info in orders:
        table.setdefault(f"{place.topic}@{place.group}", {})[place.queue_id] = _for_java(info)
    return fastjson.dumps_pretty(OrderTable(table=table))


def load(disk: Disk, orders: Orders) -> None:
    """Take over what is on the disk; raises CorruptFile when it cannot be read."""
    saved = load_file(disk, PATH, OrderTable)
    for key, queues in (saved.table if saved is not None else {}).items():
        topic, _, group = key.partition("@")
        for queue_id, info in queues.items():
            orders.put(Place(topic, group, queue_id), _from_java(info))


def _for_java(info: OrderInfo) -> OrderInfo:
    """Java's long holds 64 bits, the highest as a sign."""
    is_high = info.settled >= 1 << 63
    return msgspec.structs.replace(info, settled=info.settled - (1 << 64)) if is_high else info


def _from_java(info: OrderInfo) -> OrderInfo:
    return msgspec.structs.replace(info, settled=info.settled & ((1 << 64) - 1))
