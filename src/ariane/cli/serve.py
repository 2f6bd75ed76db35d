"""`ariane up`, `ariane namesrv` and `ariane broker`: servers in the foreground until a signal.

The servers themselves are imported when one is started, so that asking for help stays quick.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import shlex
import shutil
import signal
import socket
import sys
from collections.abc import Coroutine
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Annotated, Any, Final, Protocol, Self

import typer

from ariane.cli.collecting import Collecting
from ariane.cli.options import DEFAULT_NAMESRV, pairs_of, settings_in
from ariane.cli.output import announce, warn
from ariane.cli.unavailable import HEEDED, refuse_unavailable
from ariane.clock import SystemClock, Timers
from ariane.config import (
    BrokerConfig,
    NameServerConfig,
    StoreConfig,
    changed,
    config_of,
    unknown_key_warnings,
)
from ariane.disk import RealDisk
from ariane.errors import ConfigError, StoreError, StoreLocked
from ariane.remoting.loop_timers import drive
from ariane.remoting.rounds_loop import server_loop

# Keys that `ariane up` has options for, or decides itself.
OWN_KEYS: Final = {
    "bindAddress": "--host",
    "listenPort": "--broker-port",
    "storePathRootDir": "--data",
    "namesrvAddr": "--host and --namesrv-port",
}
ELSEWHERE: Final = "keep the data elsewhere (--data, storePathRootDir)"
DEFAULT_DATA: Final = Path(".ariane")

ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="A file of RocketMQ's own settings.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="One setting, as in broker.conf; repeatable."),
]
InsecureOption = Annotated[
    bool, typer.Option("--insecure", help="Let anybody who can reach the port read and write.")
]
LogOption = Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR; on standard error.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("up")(up)
    app.command("namesrv")(namesrv)
    app.command("broker")(broker)


def up(
    *,
    data: Annotated[Path, typer.Option(help="Where everything is kept.")] = DEFAULT_DATA,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    namesrv_port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks one.")] = 9876,
    broker_port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks one.")] = 10911,
    set_: SetOption = None,
    insecure: InsecureOption = False,
    log_level: LogOption = "WARNING",
) -> None:
    """Start a name server and a broker in one process."""
    _start_logging(log_level)
    _allow_descriptors()
    _refuse_exposure(host, insecure=insecure)
    settings = pairs_of(set_ or [], option="--set")
    for key in settings.keys() & OWN_KEYS:
        raise ConfigError(f"--set {key} has no effect here; use {OWN_KEYS[key]}")
    settings |= {
        "bindAddress": host,
        "listenPort": str(broker_port),
        "storePathRootDir": str(data / "store"),
    }
    _run(_up(data, host, namesrv_port, settings))


def namesrv(
    *,
    config: ConfigOption = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="0 picks one.")] = None,
    data: Annotated[Path, typer.Option(help="Where settings of topics are kept.")] = DEFAULT_DATA,
    insecure: InsecureOption = False,
    log_level: LogOption = "INFO",
) -> None:
    """Start a name server."""
    _start_logging(log_level)
    _allow_descriptors()
    settings = {"kvConfigPath": str(data / "namesrv" / "kvConfig.json")} | settings_in(config)
    settings |= {"bindAddress": host} if host is not None else {}
    settings |= {"listenPort": str(port)} if port is not None else {}
    _warn_of_unknown(settings, NameServerConfig)
    name_server_config = config_of(NameServerConfig, settings)
    _refuse_exposure(name_server_config.bind_host, insecure=insecure)
    _run(_namesrv(name_server_config))


def broker(
    *,
    config: ConfigOption = None,
    set_: SetOption = None,
    insecure: InsecureOption = False,
    log_level: LogOption = "INFO",
) -> None:
    """Start a broker, with RocketMQ's own settings."""
    _start_logging(log_level)
    _allow_descriptors()
    settings = settings_in(config) | pairs_of(set_ or [], option="--set")
    refuse_unavailable(settings)
    _warn_of_unknown(settings, BrokerConfig, StoreConfig)
    broker_config = config_of(BrokerConfig, settings)
    _refuse_exposure(broker_config.bind_host, insecure=insecure)
    advertised, bound = broker_config.advertised_host, broker_config.bind_host
    if advertised and not _is_loopback(advertised) and _is_loopback(bound):
        warn(
            f"clients are told {advertised} (brokerIP1), but only {bound} is listened on;"
            " set bindAddress too"
        )
    _run(_broker(broker_config, config_of(StoreConfig, settings)))


def _run(server: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=server_loop) as runner:
        runner.run(server)


async def _up(data: Path, host: str, namesrv_port: int, settings: dict[str, str]) -> None:
    from ariane.broker.broker import Broker  # noqa: PLC0415 - only servers pay for it
    from ariane.nameserver.server import NameServer  # noqa: PLC0415

    refuse_unavailable(settings)
    _warn_of_unknown(settings, BrokerConfig, StoreConfig)
    name_server_config = NameServerConfig(bind_host=host, port=namesrv_port)
    store_config = config_of(StoreConfig, settings)
    config_of(BrokerConfig, settings)  # refuse what cannot be used before anything starts
    async with _Servers() as servers:
        name_server = NameServer(
            name_server_config,
            disk=RealDisk(data / "namesrv"),
            clock=servers.clock,
            timers=servers.timers,
        )
        await servers.start(name_server, f"{host}:{namesrv_port}", "--namesrv-port")
        namesrv_address = _address(host, name_server.port)
        broker_config = config_of(BrokerConfig, settings | {"namesrvAddr": namesrv_address})
        started = Broker(
            broker_config,
            store_config,
            clock=servers.clock,
            disk=RealDisk(store_config.root),
            random=Random(),
            timers=servers.timers,
        )
        await servers.start(started, f"{host}:{broker_config.port}", "--broker-port")
        broker_address = _address(host, started.port)
        announce(f"ready namesrv={namesrv_address} broker={broker_address}")
        _introduce(broker_config, namesrv_address, broker_address, store_config.root)
        await servers.until_signal()


async def _namesrv(config: NameServerConfig) -> None:
    from ariane.nameserver.server import NameServer  # noqa: PLC0415 - only servers pay for it

    path = Path(config.kv_path)
    async with _Servers() as servers:
        started = NameServer(
            changed(config, {"kvConfigPath": path.name}),
            disk=RealDisk(path.parent),
            clock=servers.clock,
            timers=servers.timers,
        )
        await servers.start(started, _address(config.bind_host, config.port), "--port")
        announce(f"ready namesrv={_address(config.bind_host, started.port)}")
        await servers.until_signal()


async def _broker(config: BrokerConfig, store_config: StoreConfig) -> None:
    from ariane.broker.broker import Broker  # noqa: PLC0415 - only servers pay for it

    if not config.name_servers:
        warn("no name server is set (namesrvAddr), so clients will not find this broker")
    async with _Servers() as servers:
        started = Broker(
            config,
            store_config,
            clock=servers.clock,
            disk=RealDisk(store_config.root),
            random=Random(),
            timers=servers.timers,
        )
        await servers.start(started, _address(config.bind_host, config.port), "listenPort")
        announce(f"ready broker={_address(config.bind_host, started.port)}")
        await servers.until_signal()


class Startable(Protocol):
    """A server, as far as starting and stopping it goes."""

    async def start(self) -> None:
        """Listen."""
        ...

    async def stop(self) -> None:
        """Listen no more; also after a start that failed."""
        ...


class _Servers:
    """What runs in this process: started in order, stopped in reverse, on a signal or an error."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.timers = Timers(self.clock)
        self._running: list[Startable] = []
        self._signalled = asyncio.Event()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._driver = drive(self.timers, loop)
        self._collecting = Collecting(self.clock)
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # which `nohup` asks for
            numbers.append(signal.SIGHUP)
        for number in numbers:
            loop.add_signal_handler(number, self._signalled.set)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for server in reversed(self._running):
            await server.stop()
        self._driver.stop()
        self._collecting.stop()

    async def start(self, server: Startable, address: str, option: str) -> None:
        """Start one more; a port that is taken or a full disk is told in words that help."""
        self._running.append(server)
        try:
            await server.start()
        except (OSError, StoreError) as error:
            fault = error.__cause__ if isinstance(error, StoreError) else error
            if isinstance(error, StoreLocked) or not isinstance(fault, OSError):
                raise
            raise ConfigError(_starting_fault(fault, address, option)) from error

    async def until_signal(self) -> None:
        """Wait for Ctrl-C, SIGTERM, or the end of the terminal."""
        await self._signalled.wait()


def _starting_fault(error: OSError, address: str, option: str) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        what = f" for {error.filename}" if error.filename else ""
        return f"no room on the disk{what}; free some space, or {ELSEWHERE}"
    if error.filename is not None:
        return f"cannot use {error.filename}: {error.strerror}; make it writable, or {ELSEWHERE}"
    if error.errno == errno.EADDRINUSE:
        return (
            f"{address} is in use by another process; stop it, or choose another port with {option}"
        )
    if isinstance(error, socket.gaierror):
        return (
            f"cannot start on {address}: {error.strerror}; check --host, bindAddress and brokerIP1"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return f"cannot listen on {address}: {error.strerror}; check --host or bindAddress"
    if error.errno == errno.EACCES:
        return f"cannot listen on {address}: {error.strerror}; choose another port with {option}"
    return f"cannot start on {address}: {error}"


def _introduce(config: BrokerConfig, namesrv: str, broker: str, store: str) -> None:
    at = "" if namesrv == DEFAULT_NAMESRV else f" --namesrv {shlex.quote(namesrv)}"
    announce(f"  name server  {namesrv}")
    announce(f"  broker       {broker}  ({config.name} in {config.cluster})")
    announce(f"  store        {Path(store).resolve()}")
    announce("try:")
    for words in ("topic create demo", "tail demo", 'send demo "hello"'):
        announce(f"  {_command()} {words}{at}")
    announce("Ctrl-C stops it.")


def _command() -> str:
    """What to type for this command in the shell it was started from: not on every PATH it is."""
    started_as = sys.argv[0]
    if shutil.which("ariane") or not os.access(started_as, os.X_OK):
        return "ariane"
    return shlex.quote(started_as)


def _warn_of_unknown(settings: dict[str, str], *kinds: type) -> None:
    for line in unknown_key_warnings(settings.keys() - HEEDED, kinds):
        warn(line)


def _refuse_exposure(host: str, *, insecure: bool) -> None:
    if _is_loopback(host):
        return
    if not insecure:
        raise ConfigError(
            f"listening on {host!r} would let anybody who can reach it read and write; add"
            " --insecure if that is meant, or listen on 127.0.0.1"
        )
    warn(f"listening on {host} without authentication: whoever can reach it can read and write")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _start_logging(level: str) -> None:
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ConfigError(f"--log-level {level!r} is none of DEBUG, INFO, WARNING, ERROR")
    logging.basicConfig(level=number, format="%(asctime)s %(levelname)s %(name)s %(message)s")


def _allow_descriptors() -> None:
    """Have as many descriptors as the system lets us: each connection takes one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # then those there are must do
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
