"""`ariane send`: one message, from the command line, a file or standard input."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ariane.cli.options import DEFAULT_NAMESRV, NamesrvOption, TopicArgument, pairs_of
from ariane.cli.output import Output, OutputOption, say_json, say_table
from ariane.client import Client, Message, SendReceipt
from ariane.errors import ConfigError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("send")(send)


def send(
    topic: TopicArgument,
    body: Annotated[str, typer.Argument(help="The body; - reads standard input.")] = "-",
    *,
    file: Annotated[Path | None, typer.Option(help="Take the body from a file.")] = None,
    tags: Annotated[str, typer.Option(help="The tag consumers filter by.")] = "",
    key: Annotated[list[str] | None, typer.Option(help="A key to find it by; repeatable.")] = None,
    property_: Annotated[
        list[str] | None, typer.Option("--property", help="NAME=VALUE; repeatable.")
    ] = None,
    sharding_key: Annotated[
        str, typer.Option(help="Messages with one such key share a queue, in order.")
    ] = "",
    delay: Annotated[
        float | None, typer.Option(min=0, help="Deliver it so many seconds later.")
    ] = None,
    delay_level: Annotated[
        int, typer.Option(min=0, help="Deliver it later, by level: 1 is 1 s, 18 is 2 h.")
    ] = 0,
    count: Annotated[int, typer.Option(min=1, help="Send it so many times.")] = 1,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    output: OutputOption = Output.TABLE,
) -> None:
    """Send a message and say where it was stored."""
    message = Message(
        topic,
        _body_of(body, file),
        tags=tags,
        keys=key or [],
        properties=pairs_of(property_ or [], option="--property"),
        sharding_key=sharding_key,
        delay_level=delay_level,
        delay=delay,
    )
    receipts = asyncio.run(_send(namesrv, message, count))
    if output is Output.JSON:
        views = [_view_of(receipt) for receipt in receipts]
        say_json(views if count > 1 else views[0])
    else:
        say_table(
            ["STATUS", "BROKER", "QUEUE", "OFFSET", "MESSAGE ID", "OFFSET ID"],
            [list(_view_of(receipt).values()) for receipt in receipts],
        )


async def _send(namesrv: str, message: Message, count: int) -> list[SendReceipt]:
    async with Client(namesrv) as client:
        return [await client.send(message) for _ in range(count)]


def _view_of(receipt: SendReceipt) -> dict[str, str | int]:
    return {
        "status": receipt.status.value,
        "broker": receipt.queue.broker_name,
        "queue_id": receipt.queue.queue_id,
        "queue_offset": receipt.queue_offset,
        "message_id": receipt.message_id,
        "offset_message_id": receipt.offset_message_id,
    }


def _body_of(body: str, file: Path | None) -> bytes:
    if file is not None:
        if body != "-":
            raise ConfigError("give the body as a word or as --file, not both")
        return file.read_bytes()
    return sys.stdin.buffer.read() if body == "-" else os.fsencode(body)
