"""Delay levels, as the setting spells them."""

from __future__ import annotations

from typing import Final

from ariane.errors import ConfigError

LEVELS_MAX: Final = 64  # what the kernel has room for
UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def delays_ms_of(levels: str) -> list[int]:
    """Read `1s 5s 10m`: the delay of each level, from level 1 on."""
    try:
        delays_ms = [int(level[:-1]) * UNITS_MS[level[-1]] for level in levels.split()]
    except (KeyError, ValueError):
        raise ConfigError(
            f"messageDelayLevel={levels!r} cannot be read; write it like 1s 5s 10m 2h"
        ) from None
    if not 0 < len(delays_ms) <= LEVELS_MAX or min(delays_ms) < 0:
        raise ConfigError(
            f"messageDelayLevel={levels!r} has {len(delays_ms)} levels; there may be 1 to"
            f" {LEVELS_MAX}, and no delay may be negative"
        )
    return delays_ms
