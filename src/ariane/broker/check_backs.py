"""What a round of checks does to half messages: reads them, copies them, asks, gives up.

A producer is asked one-way, by any connection of its group, and answers, if it likes, with
END_TRANSACTION about the copy it was shown. Nothing here waits for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ariane.broker import half_messages, placing
from ariane.broker.state import BrokerState
from ariane.broker.system_topics import READ_WRITE
from ariane.broker.transaction_checks import Half, Ledger
from ariane.broker.transaction_recovery import record_of
from ariane.codes import RequestCode
from ariane.errors import StoreError
from ariane.protocol.bodies import TopicConfig
from ariane.protocol.command import request
from ariane.protocol.headers.transactions import CheckTransactionHeader
from ariane.protocol.message import StoredMessage
from ariane.protocol.properties import PRODUCER_GROUP, UNIQUE_KEY
from ariane.remoting.connection import Connection
from ariane.store.messages import Placed
from ariane.topics import DISCARD_TOPIC, HALF_TOPIC

UNREAD_BYTES_MAX: Final = (
    1 << 20
)  # a producer this far behind is asked only if nobody else is there


class CheckBacks:
    """The actions of a round, and a count of them; `note` hears of half offsets that ended."""

    def __init__(self, state: BrokerState, ledger: Ledger, note: Callable[[int], None]) -> None:
        self.asked = self.without_producer = self.discarded = 0
        self.in_the_way: dict[int, str] = {}  # what could not be copied, and why
        self._state = state
        self._ledger = ledger
        self._note = note
        self._last: StoredMessage | None = None  # read, and most likely acted upon next

    def read(self, queue_offset: int) -> Half | None:
        """The half message at an offset, or None when its record is gone."""
        half = self._half_at(queue_offset)
        return None if half is None else half_messages.described(half)

    def copy(self, queue_offset: int) -> int:
        """Place it again at the end, as it is; the copy's offset."""
        half = self._existing(queue_offset)
        return self._place_copy(half, half_messages.check_times_of(half)).queue_offset

    def check(self, queue_offset: int) -> int:
        """Place it again at the end, count one more check, ask its producer; the copy's offset."""
        half = self._existing(queue_offset)
        placed = self._place_copy(half, half_messages.check_times_of(half) + 1)
        self._ask(half, placed)
        return placed.queue_offset

    def discard(self, queue_offset: int) -> None:
        """Put it where an operator finds it, and note that it ended."""
        state = self._state
        if state.topics.get(DISCARD_TOPIC) is None:
            state.topics.put(
                TopicConfig(
                    name=DISCARD_TOPIC,
                    permission=READ_WRITE,
                    read_queue_count=1,
                    write_queue_count=1,
                )
            )
        placing.place(state, half_messages.discarded_of(self._existing(queue_offset)), again=True)
        self._note(queue_offset)
        self.discarded += 1

    def look_past(self, queue_offset: int, error: Exception) -> None:
        """Leave it where it is: it alone stands in the way, and the others must go on."""
        self.in_the_way[queue_offset] = str(error)

    def _half_at(self, queue_offset: int) -> StoredMessage | None:
        if self._last is None or self._last.queue_offset != queue_offset:
            store = self._state.store
            self._last = record_of(store, store.queue(HALF_TOPIC, 0), queue_offset)
        return self._last

    def _existing(self, queue_offset: int) -> StoredMessage:
        half = self._half_at(queue_offset)
        if half is None:
            raise StoreError(f"the half message at {queue_offset} is gone since it was looked at")
        return half

    def _place_copy(self, half: StoredMessage, check_times: int) -> Placed:
        first_offset = self._ledger.first_of(half.queue_offset)
        copy = half_messages.copy_of(half, first_offset, check_times)
        return placing.place(self._state, copy, again=True)

    def _ask(self, half: StoredMessage, placed: Placed) -> None:
        connection = self._producer_of(half.properties.get(PRODUCER_GROUP, ""))
        if connection is None:
            self.without_producer += 1
            return
        store = self._state.store
        record = store.log.record(placed.log_offset, store.written)
        assert record is not None
        unique_key = half.properties.get(UNIQUE_KEY)
        header = CheckTransactionHeader(
            topic=HALF_TOPIC,
            queue_offset=placed.queue_offset,
            log_offset=placed.log_offset,
            message_id=unique_key,
            transaction_id=unique_key,
            offset_message_id=placed.message_id,
            broker_name=self._state.config.name,
        )
        shown = half_messages.moved_record(
            record, half_messages.real_topic_of(half), half_messages.real_queue_of(half)
        )
        connection.send(request(RequestCode.CHECK_TRANSACTION_STATE, header, shown, one_way=True))
        self.asked += 1

    def _producer_of(self, group: str) -> Connection | None:
        """A live connection of the group: each in turn, those that do not read only if alone."""
        members = self._state.clients.producers.get(group, {})
        alive = [connection for connection in members if not connection.is_closed]
        reading = [each for each in alive if each.unread_bytes < UNREAD_BYTES_MAX]
        choice = reading or alive
        return choice[self.asked % len(choice)] if choice else None
