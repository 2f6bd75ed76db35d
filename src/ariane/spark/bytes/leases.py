"""Asking a broker not to remove what is being read from its files, for as long as it is.

A lease names the log offset that is read next and lasts some seconds; a reader that is still there
renews it, further on each time. The answer also proves that broker and reader see the same log: it
has the CRC of the record at that offset. Who cannot have a lease (no broker answers, or it is
Apache's) reads without; what goes meanwhile is then a loss like any other.
"""

from __future__ import annotations

import logging
import os
import zlib
from typing import TYPE_CHECKING, Final

from ariane.codes import RequestCode, ResponseCode
from ariane.errors import AccessImpossible, ClientError, ProtocolError
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.bulk import ReadLeaseHeader, ReadLeaseReply

if TYPE_CHECKING:
    from ariane.spark.bytes.contract import AccessOptions, QueueRange
    from ariane.spark.bytes.remote import Network

LEASE_S: Final = 60
RENEW_S: Final = 15.0
ASK_TIMEOUT_S: Final = 3.0  # a lease is a precaution: nobody waits long for it

log = logging.getLogger("ariane.spark")


class Lease:
    """A hold on the log, or the lack of one."""

    def __init__(self, network: Network | None, address: str = "") -> None:
        self._network = network
        self._address = address
        self._id = os.urandom(16).hex()
        self._asked_s = 0.0

    def begin(self, log_offset: int, record: bytes) -> None:
        """Hold the log from an offset on; raises AccessImpossible when it is not the same log."""
        reply = self._ask(log_offset, LEASE_S)
        if reply is not None and reply.record_crc != zlib.crc32(record):
            self.end()
            raise AccessImpossible(
                f"the store that broker {self._address} writes ({reply.store_path} over there) is "
                "not the one given: they differ at log offset "
                f"{log_offset}; give the broker's own directory, or let the broker be asked"
            )

    def renew(self, log_offset: int) -> None:
        """Hold on a while longer, from further on."""
        network = self._network
        if network is not None and network.clock.monotonic_s() - self._asked_s >= RENEW_S:
            self._ask(log_offset, LEASE_S)

    def end(self) -> None:
        """Hold nothing any more."""
        if self._network is not None:
            self._ask(0, 0)

    def _ask(self, log_offset: int, seconds: int) -> ReadLeaseReply | None:
        network = self._network
        if network is None:
            return None
        header = ReadLeaseHeader(lease_id=self._id, log_offset=log_offset, seconds=seconds)
        self._asked_s = network.clock.monotonic_s()
        try:
            link = network.links.get(self._address, ASK_TIMEOUT_S)
            try:
                answer = link.call(RequestCode.READ_LEASE, header)
            finally:
                network.links.put_back(link)
            if answer.code == ResponseCode.SUCCESS:
                return decode_header(ReadLeaseReply, answer.ext)
            log.info("reading without a lease broker=%s: %s", self._address, answer.remark)
        except (ClientError, ProtocolError) as error:
            log.info("reading without a lease: %s", error)
        self._network = None
        return None


class Leases:
    """Leases of one process."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def now_s(self) -> float:
        """By a clock that nobody sets."""
        return self._network.clock.monotonic_s()

    def new(self, queues: QueueRange, options: AccessOptions) -> Lease:
        """A lease that holds nothing yet."""
        if not options.name_servers:
            return Lease(None)
        try:
            address = self._network.brokers.address(
                options.name_servers, queues.topic, queues.broker, ASK_TIMEOUT_S
            )
        except ClientError as error:
            log.info("reading without a lease: %s", error)
            return Lease(None)
        return Lease(self._network, address)
