"""`ariane topic`: create, list, show, delete."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final, cast, get_args

import typer

from ariane.cli.options import DEFAULT_NAMESRV, NamesrvOption, TopicArgument
from ariane.cli.output import Output, OutputOption, say, say_json, say_table, time_text
from ariane.client import Client, QueueStats
from ariane.client.admin import MessageType
from ariane.codes import Permission
from ariane.topics import is_retry_or_dead_letter, is_system_topic

PERMISSIONS: Final = {
    "rw": Permission.READ | Permission.WRITE,
    "r": Permission.READ,
    "w": Permission.WRITE,
}
topics = typer.Typer(help="Create, list, show and delete topics.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(topics, name="topic")


@topics.command()
def create(
    topic: TopicArgument,
    *,
    queues: Annotated[int, typer.Option(min=1, help="Queues on each broker.")] = 8,
    read_queues: Annotated[
        int | None, typer.Option(min=0, help="Queues to read, when not as many as to write.")
    ] = None,
    permission: Annotated[str, typer.Option(help="rw, r or w.")] = "rw",
    message_type: Annotated[
        str, typer.Option("--type", help="Declare a type: normal, fifo, delay or transaction.")
    ] = "",
    cluster: Annotated[str, typer.Option(help="Only in this cluster.")] = "",
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
) -> None:
    """Create a topic on every broker, or change its queues, permission and type."""
    if permission not in PERMISSIONS:
        raise typer.BadParameter(f"{permission!r} is none of {', '.join(PERMISSIONS)}")
    types = get_args(MessageType)
    if message_type and message_type.upper() not in types:
        raise typer.BadParameter(f"{message_type!r} is none of {', '.join(types).lower()}")

    async def work() -> list[str]:
        async with Client(namesrv) as client:
            return await client.admin.create_topic(
                topic,
                write_queue_count=queues,
                read_queue_count=queues if read_queues is None else read_queues,
                permission=PERMISSIONS[permission],
                cluster=cluster or None,
                message_type=cast("MessageType | None", message_type.upper() or None),
            )

    brokers = asyncio.run(work())
    say(f"topic {topic} has {queues} queues on {', '.join(brokers)}")


@topics.command("list")
def list_topics(
    all_: Annotated[bool, typer.Option("--all", help="The system's own topics too.")] = False,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the topics that a name server knows."""

    async def work() -> tuple[list[str], set[str]]:
        async with Client(namesrv) as client:
            names = await client.admin.topics()
            return names, set() if all_ else await client.admin.system_topics()

    names, system = asyncio.run(work())
    if not all_:
        names = [
            name
            for name in names
            if name.removesuffix("_REPLY_TOPIC") not in system
            and not is_system_topic(name)
            and not is_retry_or_dead_letter(name)
        ]
    if output is Output.JSON:
        say_json(names)
        return
    for name in names:
        say(name)
    if not names:
        typer.echo("no topics; `ariane topic create NAME` makes one", err=True)


@topics.command()
def show(
    topic: TopicArgument,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a topic's queues: where they are and which messages they hold."""

    async def work() -> list[QueueStats]:
        async with Client(namesrv) as client:
            return await client.admin.topic_stats(topic)

    stats = asyncio.run(work())
    if output is Output.JSON:
        say_json([_view_of(queue) for queue in stats])
        return
    say_table(
        ["BROKER", "QUEUE", "FIRST", "END", "MESSAGES", "LAST STORED"],
        [
            [
                queue.queue.broker_name,
                queue.queue.queue_id,
                queue.min_offset,
                queue.max_offset,
                queue.max_offset - queue.min_offset,
                time_text(queue.updated_at_ms),
            ]
            for queue in stats
        ],
    )


@topics.command()
def delete(
    topic: TopicArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    cluster: Annotated[str, typer.Option(help="Only in this cluster.")] = "",
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
) -> None:
    """Delete a topic and every message in it."""
    if not yes:
        typer.confirm(f"Delete topic {topic} and all of its messages?", abort=True)

    async def work() -> list[str]:
        async with Client(namesrv) as client:
            return await client.admin.delete_topic(topic, cluster=cluster or None)

    say(f"topic {topic} is gone from {', '.join(asyncio.run(work()))}")


def _view_of(stats: QueueStats) -> dict[str, str | int]:
    return {
        "broker": stats.queue.broker_name,
        "queue_id": stats.queue.queue_id,
        "min_offset": stats.min_offset,
        "max_offset": stats.max_offset,
        "updated_at_ms": stats.updated_at_ms,
    }
