"""Which segments may go, and when: pure decisions, as a table would state them.

A segment goes when it is older than the time to keep, during the hours set for it or when the disk
is filling up; past the force ratio the oldest go whatever their age, if the settings allow it. The
newest segment never goes, nor one that is not yet covered by a checkpoint; one that somebody reads
under a lease goes only past the force ratio.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from ariane.config import StoreConfig, hours_of


class Situation(NamedTuple):
    """What the decision depends on."""

    now_s: float
    used_ratio: float
    modified_s: Sequence[float]  # of the segments that may go at all, oldest first
    is_asked: bool = False  # by an administrator, who does not wait for the hour


def removable_count(config: StoreConfig, situation: Situation) -> int:
    """How many of the oldest segments to remove now."""
    is_filling = situation.used_ratio > config.disk_used_max_percent / 100
    is_forced = is_clean_forced(config, situation.used_ratio)
    is_time = situation.is_asked or is_delete_hour(config.delete_hours, situation.now_s)
    if not (is_filling or is_forced or is_time):
        return 0
    count = 0
    for modified_s in situation.modified_s[: config.delete_batch_max]:
        is_old = situation.now_s - modified_s > config.retention_hours * 3600
        if not (is_old or is_forced):
            break
        count += 1
    return count


def is_clean_forced(config: StoreConfig, used_ratio: float) -> bool:
    """Whether the oldest segments go whatever their age and whoever reads them."""
    return config.force_clean_enabled and used_ratio > config.disk_force_ratio


def is_too_full(config: StoreConfig, used_ratio: float) -> bool:
    """Whether the disk is so full that nothing more may be written."""
    return used_ratio > config.disk_stop_ratio


def is_delete_hour(hours: str, now_s: float) -> bool:
    """Whether the local hour is one of those set, as in `04` or `04;16`."""
    return datetime.fromtimestamp(now_s).hour in hours_of(hours)
