"""A slow, obvious writer of records and of compressed registrations, to test the readers with."""

from __future__ import annotations

import json
import struct
import zlib
from ipaddress import ip_address

from ariane.protocol.bodies import RegisterBrokerBody
from ariane.protocol.message import MAGIC_V1, StoredMessage, encode_properties


def record_bytes(
    message: StoredMessage, *, magic: int = MAGIC_V1, size: int | None = None
) -> bytes:
    """The record a broker would store; `size` plants a lie."""
    properties = encode_properties(message.properties).encode()
    topic = message.topic.encode()
    topic_length = struct.pack(">B" if magic == MAGIC_V1 else ">h", len(topic))
    rest = b"".join(
        (
            struct.pack(">Iiii", magic, message.body_crc32, message.queue_id, message.flag),
            struct.pack(">qqi", message.queue_offset, message.log_offset, message.system_flag),
            struct.pack(">q", message.born_at_ms),
            ip_address(message.born_host[0]).packed + struct.pack(">i", message.born_host[1]),
            struct.pack(">q", message.stored_at_ms),
            ip_address(message.store_host[0]).packed + struct.pack(">i", message.store_host[1]),
            struct.pack(">iq", message.reconsume_times, message.prepared_offset),
            struct.pack(">i", len(message.stored_body)) + message.stored_body,
            topic_length + topic,
            struct.pack(">h", len(properties)) + properties,
        )
    )
    return struct.pack(">i", 4 + len(rest) if size is None else size) + rest


def register_bytes(body: RegisterBrokerBody, *, mappings: bool = False) -> bytes:
    """The compressed registration, before it is compressed."""

    def part(text: str) -> bytes:
        data = text.encode()
        return struct.pack(">i", len(data)) + data

    version = body.table.data_version
    parts = [
        part(
            json.dumps(
                {
                    "counter": version.counter,
                    "stateVersion": version.state_version,
                    "timestamp": version.timestamp,
                }
            )
        ),
        struct.pack(">i", len(body.table.topics)),
    ]
    for topic in body.table.topics.values():
        attributes = json.dumps(topic.attributes, separators=(",", ":"))
        parts.append(
            part(
                f"{topic.name} {topic.read_queue_count} {topic.write_queue_count} "
                f"{topic.permission} {topic.filter_type} {attributes}"
            )
        )
    parts.append(part(json.dumps(body.filter_servers)))
    if mappings:
        parts.append(struct.pack(">i", 1) + part('{"bname":"b","currIdMap":{0:0},"topic":"T"}'))
    return b"".join(parts)


def compressed_register_bytes(body: RegisterBrokerBody, *, mappings: bool = False) -> bytes:
    """The registration as it crosses the wire."""
    return zlib.compress(register_bytes(body, mappings=mappings))
