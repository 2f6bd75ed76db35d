"""Addresses as records and message ids hold them."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address


@lru_cache(maxsize=4096)
def host_bytes_of(host: tuple[str, int]) -> bytes:
    """4 or 16 address bytes and the port in 4."""
    address, port = host
    return ip_address(address).packed + port.to_bytes(4, "big")


def message_id_of(host_bytes: bytes, log_offset: int) -> str:
    """The id that tells which broker has a message, and where."""
    return (host_bytes + log_offset.to_bytes(8, "big")).hex().upper()
