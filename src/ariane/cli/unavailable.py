"""Settings of RocketMQ's that cannot be ignored though nothing here heeds them.

To pass over them with a warning would leave open what somebody meant to close, or begin a second
log beside the one that holds the messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ariane.config import StoreConfig
from ariane.errors import ConfigError

STORE_TYPE: Final = "storeType"
# What RocketMQ may be told to do and we cannot, and why.
UNAVAILABLE: Final = {
    "aclEnable": "there is no access control here; keep others out by bindAddress",
    "authenticationEnabled": "there is no access control here; keep others out by bindAddress",
    "authorizationEnabled": "there is no access control here; keep others out by bindAddress",
    "enableControllerMode": "there are no replicas here",
    "enableDLegerCommitLog": "there are no replicas here",
}
STORE_DIRECTORIES: Final = {
    "storePathCommitLog": "commitlog",
    "storePathConsumeQueue": "consumequeue",
    "storePathIndex": "index",
}
HEEDED: Final = {*UNAVAILABLE, *STORE_DIRECTORIES, STORE_TYPE}


def refuse_unavailable(settings: Mapping[str, str]) -> None:
    """Raise ConfigError for a setting of RocketMQ's that whoever made it counts on, and we lack."""
    for key, reason in UNAVAILABLE.items():
        if settings.get(key, "false").strip().lower() == "true":
            raise ConfigError(f"setting {key}=true cannot be used: {reason}")
    store_type = settings.get(STORE_TYPE, "default").strip()
    if store_type != "default":
        raise ConfigError(f"setting {STORE_TYPE}={store_type!r} cannot be used: it may be default")
    root = Path(settings.get("storePathRootDir", StoreConfig().root).strip())
    for key, name in STORE_DIRECTORIES.items():
        directory = settings.get(key, str(root / name)).strip()
        if Path(directory).absolute() != (root / name).absolute():
            raise ConfigError(
                f"setting {key}={directory!r} cannot be used: it is always {root / name}, below"
                " storePathRootDir"
            )
