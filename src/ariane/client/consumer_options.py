"""How a push consumer consumes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ariane.client.dead_letters import DeadLetterHook
from ariane.client.process_queue import Limits
from ariane.client.pulling import COUNT_MAX
from ariane.client.rebalance import Average, Strategy
from ariane.client.retrying import Retry
from ariane.client.starting import Start
from ariane.errors import InvalidArgument


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How a group is consumed; all its members should have the same."""

    orderly: bool = False  # one message of a queue at a time, in its order
    broadcast: bool = False  # every member gets every message, and none again
    start: Start = Start.LAST
    retry: Retry = field(default_factory=Retry)
    dead_letter: DeadLetterHook | None = None  # called with what was given up
    strategy: Strategy = field(default_factory=Average)
    limits: Limits = field(default_factory=Limits)
    timeout_s: float = 900.0  # a message that waits and takes longer here is sent back
    pull_count_max: int = COUNT_MAX  # messages of a pull; brokers give 32 at most as a rule
    pull_interval_s: float = 0.0  # between a pull that brought something and the next
    drain_s: float = 30.0  # that handlers have to end when the consumer closes
    offsets_directory: Path | None = None  # of a broadcast's progress; in the home by default

    def __post_init__(self) -> None:
        if self.pull_count_max < 1 or self.pull_interval_s < 0:
            raise InvalidArgument(
                f"pull_count_max={self.pull_count_max}, pull_interval={self.pull_interval_s}:"
                " 1 message or more, 0 s or more"
            )
