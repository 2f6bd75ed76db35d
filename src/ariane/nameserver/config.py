"""Which settings may be changed while the name server runs, and how.

An allow-list: whoever can reach the port can send an update, so nothing that names a path, an
address or a program is on it. An update is taken whole or not at all.
"""

from __future__ import annotations

from typing import Final

from ariane.codes import ResponseCode
from ariane.config import NameServerConfig, changed, parse_properties
from ariane.errors import ConfigError, RequestRejected

CHANGEABLE: Final = frozenset(
    {
        "orderMessageEnable",
        "returnOrderTopicConfigToBroker",
        "enableAllTopicList",
        "deleteTopicWithBrokerRegistration",
        "brokerChannelExpiredTime",
        "scanNotActiveBrokerInterval",
    }
)
INTERVAL_MS_MIN: Final = 1_000  # a scan more often than this would only burn the loop


def updated(config: NameServerConfig, text: str) -> NameServerConfig:
    """The configuration with the properties text applied, or RequestRejected saying why not."""
    properties = parse_properties(text)
    forbidden = sorted(properties.keys() - CHANGEABLE)
    if forbidden:
        raise RequestRejected(
            f"not changeable while running: {', '.join(forbidden)};"
            f" changeable: {', '.join(sorted(CHANGEABLE))}",
            ResponseCode.NO_PERMISSION,
        )
    try:
        return checked(changed(config, properties))
    except ConfigError as error:
        raise RequestRejected(str(error)) from error


def checked(config: NameServerConfig) -> NameServerConfig:
    """The configuration itself, or ConfigError naming the setting that cannot be used."""
    for key, value_ms in (
        ("brokerChannelExpiredTime", config.broker_expiry_ms),
        ("scanNotActiveBrokerInterval", config.scan_interval_ms),
    ):
        if value_ms < INTERVAL_MS_MIN:
            raise ConfigError(
                f"setting {key}={value_ms} cannot be used: at least {INTERVAL_MS_MIN} is needed"
            )
    return config
