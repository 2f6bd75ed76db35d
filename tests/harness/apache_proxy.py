"""Apache RocketMQ's proxy with a broker inside, which clients of the gRPC protocol need."""

import json
import os
from pathlib import Path

from tests.harness.apache import OPENS, Apache
from tests.harness.processes import ROOT, ServerFailed, free_port

JARS = Path(os.environ.get("APACHE_PROXY_JARS", ROOT / ".cache/rocketmq-proxy/lib"))


class ApacheProxy(Apache):
    """Name server, and proxy and broker in one process: the shortest way the proxy has."""

    endpoints = ""  # what clients are given

    def _launch_broker(self) -> Path:
        if not any(JARS.glob("rocketmq-proxy-*.jar")):
            raise ServerFailed(
                f"no proxy in {JARS}; `make .cache/rocketmq-proxy/.fetched` fetches it"
            )
        port = free_port()
        self.endpoints = f"127.0.0.1:{port}"
        settings = {
            "rocketMQClusterName": "DefaultCluster",
            "proxyMode": "local",
            "grpcServerPort": port,
            "remotingListenPort": free_port(),
        }
        (self.directory / "proxy.json").write_text(json.dumps(settings))
        words = ["-n", self.namesrv_address, "-pm", "local", "-bc", "broker.conf", "-pc"]
        return self._java(
            "broker",
            "org.apache.rocketmq.proxy.ProxyStartup",
            [*self.flags, *OPENS],
            *words,
            "proxy.json",
            jars=JARS,
        )
