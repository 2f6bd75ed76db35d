"""What a test's broker is set to, and what it may not be."""

from __future__ import annotations

from typing import Final

from ariane.config import BrokerConfig, StoreConfig, config_of, unknown_key_warnings
from ariane.errors import ConfigError

# Small files: a broker is made for each test, and zeroing a gigabyte takes longer than most tests.
SETTINGS: Final[dict[str, str]] = {
    "mappedFileSizeCommitLog": str(8 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 1000),
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    # What is old enough goes as the clock is turned, at whatever hour of the day a test runs.
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
    "vipChannelEnable": "false",
}
OWN_KEYS: Final = ("bindAddress", "brokerIP1", "listenPort", "namesrvAddr", "storePathRootDir")


def settings_of(given: dict[str, object]) -> dict[str, str]:
    """All settings as text; raises ConfigError for what cannot be."""
    settings = SETTINGS | {key: _text(value) for key, value in given.items()}
    _refuse_unusable(settings)
    return settings


def _refuse_unusable(settings: dict[str, str]) -> None:
    for key in settings.keys() & set(OWN_KEYS):
        raise ConfigError(f"setting {key} is decided by the broker of a test itself; leave it out")
    for warning in unknown_key_warnings(settings, (BrokerConfig, StoreConfig)):
        raise ConfigError(warning)
    for kind in (BrokerConfig, StoreConfig):
        config_of(kind, settings)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
