"""`ariane message`: by id and by key, what became of one, and transactions given up."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import typer

from ariane.cli.options import DEFAULT_NAMESRV, NamesrvOption, TopicArgument
from ariane.cli.output import Output, OutputOption, bytes_text, say, say_json, say_table, time_text
from ariane.cli.records import say_message, view_of
from ariane.client import Client, StoredMessage
from ariane.client.tracking import Track
from ariane.errors import ClientError

messages = typer.Typer(help="Look up messages.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(messages, name="message")


@messages.command()
def get(
    message_id: Annotated[
        str, typer.Argument(help="The offset id; with --topic also the message id.", metavar="ID")
    ],
    topic: Annotated[str, typer.Option(help="Look for the message id in this topic.")] = "",
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show one message with everything about it."""

    async def work() -> StoredMessage:
        async with Client(namesrv) as client:
            return await looked_up(client, message_id, topic)

    message = asyncio.run(work())
    if output is Output.JSON:
        say_json(view_of(message))
    else:
        say_message(message)


@messages.command()
def track(
    message_id: Annotated[
        str, typer.Argument(help="The offset id; with --topic also the message id.", metavar="ID")
    ],
    topic: Annotated[str, typer.Option(help="Look for the message id in this topic.")] = "",
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show what became of a message in each group that reads its topic."""

    async def work() -> list[Track]:
        async with Client(namesrv) as client:
            return await client.admin.track(await looked_up(client, message_id, topic))

    tracks = asyncio.run(work())
    if output is Output.JSON:
        say_json([track_view(found) for found in tracks])
        return
    say_table(
        ["GROUP", "STATUS", "PAST IT", "DETAIL"],
        [
            [found.group, found.type.value, PAST_IT[found.is_passed], found.detail]
            for found in tracks
        ],
    )


PAST_IT: Final = {True: "yes", False: "no", None: "-"}


def track_view(found: Track) -> dict[str, object]:
    """A track as JSON shows it."""
    return {
        "group": found.group,
        "status": found.type.value,
        "is_passed": found.is_passed,
        "detail": found.detail,
    }


async def looked_up(client: Client, message_id: str, topic: str) -> StoredMessage:
    """The message by its offset id, or by the id its producer gave it if the topic is known."""
    if not topic:
        try:
            return await client.admin.message(message_id)
        except ClientError as error:  # a message id has the same digits, and means something else
            raise ClientError(
                f"{error}; if {message_id} is a message id, not an offset id, add --topic TOPIC"
            ) from error
    found = await client.admin.find_by_id(topic, message_id)
    if not found:
        raise ClientError(f"topic {topic!r} has no message {message_id}; is the topic right?")
    return found[-1]


@messages.command()
def resume(
    offset_id: Annotated[
        str, typer.Argument(help="Its offset id in TRANS_CHECK_MAX_TIME_TOPIC.", metavar="ID")
    ],
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
) -> None:
    """Have a transaction asked about again that was given up."""

    async def work() -> None:
        async with Client(namesrv) as client:
            await client.admin.resume_transaction(offset_id)

    asyncio.run(work())
    say(f"{offset_id} is a half message again; its producers will be asked")


@messages.command()
def find(
    topic: TopicArgument,
    key: Annotated[str, typer.Argument(help="A key the message was sent with.", metavar="KEY")],
    count: Annotated[int, typer.Option(min=1, max=64, help="At most so many.")] = 32,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the messages with a key, oldest first."""

    async def work() -> list[StoredMessage]:
        async with Client(namesrv) as client:
            return await client.admin.find(topic, key, count_max=count)

    found = asyncio.run(work())
    if output is Output.JSON:
        say_json([view_of(message) for message in found])
        return
    say_table(
        ["STORED", "QUEUE", "OFFSET", "MESSAGE ID", "OFFSET ID", "BODY"],
        [
            [
                time_text(message.stored_at_ms),
                message.queue_id,
                message.queue_offset,
                message.message_id,
                message.offset_message_id,
                bytes_text(message.body, length_max=40),
            ]
            for message in found
        ],
    )
