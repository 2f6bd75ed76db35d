"""Settings that may be changed while the broker runs: an allow-list with ranges, and nothing else.

Those of Apache's broker that name a mechanism inside it (`inner_settings.py`) are taken as well,
and nothing goes by them.

Paths, addresses, names and whatever could make the broker run or write something elsewhere are not
on it and never will be. What was changed is kept in `config/broker.properties` and wins over the
configuration file at the next start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import msgspec

from ariane.broker.inner_settings import INNER, SHOWN_AS, VALUE
from ariane.broker.persistence import SavedFile, Saver
from ariane.broker.state import BrokerState
from ariane.broker.tables import next_version
from ariane.clock import Clock
from ariane.codes import ResponseCode
from ariane.config import BrokerConfig, StoreConfig, changed, keys_of, parse_properties
from ariane.disk import Disk
from ariane.errors import ConfigError, InvalidParameter, RequestRejected
from ariane.protocol.bodies import DataVersion
from ariane.store import config_files

LOGGER: Final = logging.getLogger("ariane.broker")

UPDATES_PATH: Final = "config/broker.properties"
YEAR_HOURS: Final = 366 * 24

# Numbers with the values they may have; None for flags and text, which their type checks.
ALLOWED: Final[dict[str, range | None]] = {
    "autoCreateSubscriptionGroup": None,
    "autoCreateTopicEnable": None,
    "brokerFastFailureEnable": None,
    "brokerPermission": range(2, 7, 2),
    "defaultMessageRequestMode": None,
    "deleteFileBatchMax": range(1, 1_001),
    "deleteWhen": None,
    "diskMaxUsedSpaceRatio": range(10, 96),
    "enablePropertyFilter": None,
    "enableRetryTopicV2": None,
    "enableTopicMessageTypeCheck": None,
    "fileReservedTime": range(1, 10 * YEAR_HOURS),
    "longPollingEnable": None,
    "maxPopPollingSize": range(1, 1_000_001),
    "notifyConsumerIdsChangedEnable": None,
    "osPageCacheBusyTimeOutMills": range(10, 600_001),
    "popFromRetryProbability": range(101),
    "popFromRetryProbabilityForPriority": range(101),
    "popPollingSize": range(1, 1_000_001),
    "priorityOrderAsc": None,
    "recallMessageEnable": None,
    "rejectTransactionMessage": None,
    "serverLoadBalancerEnable": None,
    "shortPollingTimeMills": range(1, 28_001),
    "timerCongestNumEachSlot": range(1, 2**31),
    "timerMaxDelaySec": range(1, YEAR_HOURS * 3600),
    "traceOn": None,
    "useSeparateRetryQueue": None,
    "useServerSideResetOffset": None,
    "transactionCheckInterval": range(100, 3_600_001),
    "transactionCheckMax": range(1, 10_001),
    "transactionOpBatchInterval": range(60_001),
    "transactionOpMsgMaxSize": range(1, 65_537),
    "transactionTimeOut": range(1, 86_400_001),
    "waitTimeMillsInPullQueue": range(1, 60_001),
    "waitTimeMillsInSendQueue": range(1, 60_001),
}

C = TypeVar("C", bound=msgspec.Struct)


class ConfigUpdates:
    """What was changed at run time, by key, and the file it is kept in."""

    def __init__(self, clock: Clock, saver: Saver) -> None:
        self.values: dict[str, str] = {}
        self.version = DataVersion(timestamp=clock.wall_ms())
        self.on_change: list[Callable[[], None]] = []
        self.file = SavedFile(UPDATES_PATH, self._encode, saver)
        self._clock = clock

    def load(self, disk: Disk) -> None:
        """Take over what was changed before the last stop; raises CorruptFile."""
        found = config_files.load(disk, UPDATES_PATH, lambda data: parse_properties(data.decode()))
        for key, value in (found or {}).items():
            if key in ALLOWED or key in INNER:
                LOGGER.info("setting changed at run time is kept key=%s value=%s", key, value)
                self.values[key] = value
            else:
                LOGGER.warning("setting ignored key=%s: it is not one to change at run time", key)

    def applied_to(self, config: C) -> C:
        """The configuration with the changes that concern it."""
        return _changed(config, self.values)

    def update(self, state: BrokerState, properties: Mapping[str, str]) -> None:
        """Change settings, all of them or none; raises RequestRejected saying what is wrong."""
        for key, value in properties.items():
            check(key, value)
        try:
            config = _changed(state.config, properties)
            store_config = _changed(state.store_config, properties)
        except ConfigError as error:
            raise InvalidParameter(str(error)) from error
        self.values |= properties
        self.version = next_version(self.version, self._clock)
        self.file.changed()
        apply(state, config, store_config)
        for listener in self.on_change:
            listener()
        LOGGER.info("settings changed %s", " ".join(f"{k}={v}" for k, v in properties.items()))
        if idle := sorted(INNER & properties.keys()):
            LOGGER.warning("settings without effect here, taken all the same: %s", " ".join(idle))

    def without_effect(self) -> dict[str, str]:
        """What was set and nothing goes by, as it is shown: each, and all their names."""
        found = {key: value for key, value in self.values.items() if key in INNER}
        return found | {SHOWN_AS: ";".join(sorted(found))} if found else {}

    def _encode(self) -> bytes:
        return "".join(f"{key}={value}\n" for key, value in sorted(self.values.items())).encode()


def check(key: str, value: str) -> None:
    """Raise RequestRejected unless the key may be changed and takes the value."""
    if key in INNER:
        if VALUE.fullmatch(value) is None:
            raise InvalidParameter(f"{key}={value[:100]!r} is not a number, a flag or a word")
        return
    if key not in ALLOWED:
        raise RequestRejected(
            f"{key} cannot be changed while the broker runs; "
            f"those that can are {', '.join(sorted(ALLOWED))}",
            ResponseCode.NO_PERMISSION,
        )
    allowed = ALLOWED[key]
    if allowed is not None and not (value.isdecimal() and int(value) in allowed):
        raise InvalidParameter(f"{key}={value} is not in {allowed[0]}..{allowed[-1]}")


def apply(state: BrokerState, config: BrokerConfig, store_config: StoreConfig) -> None:
    """Let every part of the broker work by new settings."""
    has_other_rights = config.permission != state.config.permission
    state.config = state.groups.config = config
    state.topics.configure(config)
    state.store_config = store_config
    state.store.reconfigure(store_config)
    if has_other_rights:
        state.topics.touch()


def _changed(config: C, properties: Mapping[str, str]) -> C:
    known = keys_of(type(config))
    return changed(config, {key: value for key, value in properties.items() if key in known})
