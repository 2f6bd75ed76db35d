"""Everything the handlers share, in one value.

There is one writer and one loop, so nothing here is locked: a handler that has not returned sees a
steady world.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random  # noqa: TID251 - the type; the instance is injected
from typing import TYPE_CHECKING

from ariane.clock import Clock, Timers
from ariane.config import BrokerConfig, StoreConfig
from ariane.protocol.message import UniqueKeys

if TYPE_CHECKING:
    from ariane.broker.bulk_reads import BulkReads
    from ariane.broker.clients import ClientRegistry
    from ariane.broker.config_update import ConfigUpdates
    from ariane.broker.consume_offsets import OffsetTable
    from ariane.broker.consumer_filters import FilterTable
    from ariane.broker.flow_control import FlowControl
    from ariane.broker.hot_lane import HotLane
    from ariane.broker.locks import QueueLocks
    from ariane.broker.long_polling import LongPolling
    from ariane.broker.parked import Parked
    from ariane.broker.pop.service import Pop
    from ariane.broker.registration import Registration
    from ariane.broker.schedule import Schedule
    from ariane.broker.staging.service import Staging
    from ariane.broker.stats import Stats
    from ariane.broker.tables import GroupTable, TopicTable
    from ariane.broker.timer import TimerService
    from ariane.broker.transactions import Transactions
    from ariane.store.store import Store


@dataclass(slots=True)
class BrokerState:
    """The broker's tables, its store, and what is waiting; `config` is replaced when it changes."""

    config: BrokerConfig
    store_config: StoreConfig
    clock: Clock
    timers: Timers
    random: Random
    store: Store
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    clients: ClientRegistry
    filters: FilterTable
    locks: QueueLocks
    stats: Stats
    flow: FlowControl
    held: LongPolling
    parked: Parked
    unique_keys: UniqueKeys
    store_host: tuple[str, int]  # what message ids point at
    updates: ConfigUpdates
    registration: Registration | None = None  # once the broker serves
    schedule: Schedule = field(init=False)  # places messages, as the handlers do
    timer: TimerService = field(init=False)
    transactions: Transactions = field(init=False)
    pop: Pop = field(init=False)
    bulk: BulkReads = field(init=False)
    staging: Staging = field(init=False)
    lane: HotLane = field(init=False)  # stands in for the handlers, so it needs all the rest

    def ack_at(self, end_offset: int, *, waits: bool) -> int | None:
        """The log offset that must be safe before a message that ends there is acknowledged."""
        return end_offset if waits and self.store.marks.policy.parks else None

    def arrived(self, topic: str, queue_id: int) -> None:
        """Tell whoever waits for messages of a queue that it grew."""
        self.held.arrived(topic, queue_id)
        self.pop.arrived(topic, queue_id)

    def may_notify(self, group: str) -> bool:
        """Whether the members of a consumer group are told when others come and go."""
        config = self.groups.get(group)
        return self.config.notify_consumer_changes and (config is None or config.notify_changes)
