"""Addresses as records and message ids hold them."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address


@lru_cache(maxsize=4096)
def host_bytes_of(host: tuple[str, int]) -> bytes:
    """4 or 16 address bytes and the port in 4; an IPv4 peer of an IPv6 socket counts as IPv4."""
    address = ip_address(host[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).packed + host[1].to_bytes(4, "big")


def message_id_of(host_bytes: bytes, log_offset: int) -> str:
    """The id that tells which broker has a message, and where."""
    return (host_bytes + log_offset.to_bytes(8, "big")).hex().upper()
