"""How many connections a broker takes is for its operator to say."""

from __future__ import annotations

import socket

import pytest

from ariane.testing import EmbeddedBroker


@pytest.mark.parametrize("key", ["maxConnections", "maxConnectionsPerAddress"])
def test_a_broker_takes_as_many_connections_as_it_is_told_to(key: str) -> None:
    with EmbeddedBroker(**{key: 2}) as broker:
        host, port = broker.address.split(":")
        taken = [socket.create_connection((host, int(port)), 5) for _ in range(2)]
        with socket.create_connection((host, int(port)), 5) as refused:
            assert refused.recv(1) == b""  # closed at once
        for each in taken:
            each.setblocking(False)
            with each, pytest.raises(BlockingIOError):
                each.recv(1)  # still open, with nothing to read
