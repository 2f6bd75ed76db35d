"""Which settings may be changed while the name server runs, and how.

An allow-list: whoever can reach the port can send an update, so nothing that names a path, an
address or a program is on it. An update is taken whole or not at all.
"""

from __future__ import annotations

import select
from typing import Final

from ariane.codes import ResponseCode
from ariane.config import NameServerConfig, changed, parse_properties, properties_of
from ariane.errors import ConfigError, RequestRejected
from ariane.remoting.connection import ConnectionLimits
from ariane.remoting.server import BACKLOG

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
# What Apache's name server can be told beside, as it stands here: tools list these keys, and some
# compare them. One loop serves everything, so there are no pools; 0 leaves a size to the system.
FIXED: Final = {
    "clientRequestThreadPoolNums": "0",
    "clientRequestThreadPoolQueueCapacity": "0",
    "clusterTest": "false",
    "configStorePath": "",  # what is changed while running is not kept
    "defaultThreadPoolNums": "0",
    "defaultThreadPoolQueueCapacity": "0",
    "enableControllerInNamesrv": "false",
    "enableShutdownGracefully": "true",
    "enableTopicList": "true",
    "needWaitForService": "false",
    "notifyMinBrokerIdChanged": "false",
    "productEnvName": "center",
    "rocketmqHome": "",
    "serverAsyncSemaphoreValue": "0",
    "serverCallbackExecutorThreads": "0",
    "serverNettyWorkerGroupEnable": "false",
    "serverOnewaySemaphoreValue": "0",
    "serverPooledByteBufAllocatorEnable": "false",
    "serverSelectorThreads": "1",
    "serverSocketBacklog": str(BACKLOG),
    "serverSocketRcvBufSize": "0",
    "serverSocketSndBufSize": "0",
    "serverWorkerThreads": "0",
    "shutdownWaitTimeSeconds": "0",
    "supportActingMaster": "false",
    "unRegisterBrokerQueueCapacity": "0",
    "useEpollNativeSelector": str(hasattr(select, "epoll")).lower(),
    "waitSecondsForService": "0",
    "writeBufferHighWaterMark": "0",
    "writeBufferLowWaterMark": "0",
}
INTERVAL_MS_MIN: Final = 1_000  # a scan more often than this would only burn the loop


def shown(config: NameServerConfig) -> dict[str, str]:
    """Every key that Apache's name server has, and ours, with what is true of this one."""
    told = {
        "configBlackList": ";".join(sorted(properties_of(config).keys() - CHANGEABLE)),
        "serverChannelMaxIdleTimeSeconds": f"{ConnectionLimits().idle_s:.0f}",
    }
    return dict(sorted({**FIXED, **told, **properties_of(config)}.items()))


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
