"""The body of REGISTER_BROKER (103), plain or compressed.

Compressed it is a zlib stream of length-prefixed parts. What it inflates to is bounded in size and
in ratio, since anybody who can connect can send one.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec
from msgspec import field

from ariane.errors import ProtocolError
from ariane.protocol import fastjson
from ariane.protocol.bodies.tables import DataVersion, TopicConfig, TopicConfigTable
from ariane.protocol.compression import inflate_zlib
from ariane.protocol.limits import INFLATE_RATIO_MAX, INFLATED_BYTES_MAX

_INT: Final = struct.Struct(">i")
_TOPIC_PARTS: Final = 5  # name, read queues, write queues, permission, filter type


class RegisterBrokerBody(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker serves."""

    filter_servers: list[str] = field(name="filterServerList", default_factory=list)
    table: TopicConfigTable = field(
        name="topicConfigSerializeWrapper", default_factory=TopicConfigTable
    )


def decode_register_body(body: bytes) -> RegisterBrokerBody:
    """Read either form; which one it is shows in the bytes, the header's flag may lie."""
    if body.lstrip()[:1] == b"{":
        return fastjson.decode(body, RegisterBrokerBody)
    return _decode_parts(
        inflate_zlib(body, size_max=INFLATED_BYTES_MAX, ratio_max=INFLATE_RATIO_MAX)
    )


def _decode_parts(data: bytes) -> RegisterBrokerBody:
    reader = _Parts(data)
    version = fastjson.decode(reader.part(), DataVersion)
    topics: dict[str, TopicConfig] = {}
    for _ in range(reader.count()):
        topic = _topic_of(reader.part())
        topics[topic.name] = topic
    filter_servers = fastjson.decode(reader.part(), list[str])
    # Brokers from 5.0 on append mappings of static topics, which routes do not use.
    return RegisterBrokerBody(
        filter_servers=filter_servers,
        table=TopicConfigTable(data_version=version, topics=topics),
    )


def _topic_of(part: bytes) -> TopicConfig:
    """A topic from `name readQueues writeQueues permission filterType attributes`."""
    try:
        text = part.decode()
        name, read, write, permission, filter_type, *rest = text.split(" ", _TOPIC_PARTS)
        attributes = fastjson.decode(rest[0].encode(), dict[str, str]) if rest and rest[0] else {}
        members = {
            "topicName": name,
            "readQueueNums": read,
            "writeQueueNums": write,
            "perm": permission,
            "topicFilterType": filter_type,
            "attributes": attributes,
        }
        return msgspec.convert(members, TopicConfig, strict=False)
    except (ValueError, msgspec.ValidationError) as error:
        raise ProtocolError(f"a registered topic cannot be read: {error}") from error


class _Parts:
    """Length-prefixed parts, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def count(self) -> int:
        """A number of parts to come."""
        if len(self._data) - self._position < _INT.size:
            raise ProtocolError("a register-broker body is cut short")
        (number,) = _INT.unpack_from(self._data, self._position)
        self._position += _INT.size
        left = len(self._data) - self._position
        if not 0 <= number <= left:
            raise ProtocolError(f"a register-broker body counts {number} with {left} bytes left")
        return int(number)

    def part(self) -> bytes:
        """The next part."""
        size = self.count()
        first = self._position
        self._position = first + size
        return self._data[first : self._position]
