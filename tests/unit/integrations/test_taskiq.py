"""Tasks of the real taskiq, run by its own receiver."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from taskiq.api import run_receiver_task

from ariane.errors import ClientError
from ariane.integrations.taskiq import ArianeBroker
from ariane.testing import EmbeddedBroker


@asynccontextmanager
async def working(broker: ArianeBroker) -> AsyncIterator[None]:
    broker.is_worker_process = True
    await broker.startup()
    worker = asyncio.create_task(run_receiver_task(broker))
    try:
        yield
    finally:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        await broker.shutdown()


async def test_tasks_run_once_and_are_acknowledged(ariane_broker: EmbeddedBroker) -> None:
    with ariane_broker.blocking_client() as client:
        client.admin.create_topic("jobs", write_queue_count=1)
        done: asyncio.Queue[int] = asyncio.Queue()
        broker = ArianeBroker(ariane_broker.name_server, topic="jobs", group="workers")

        @broker.task
        async def add(a: int, b: int) -> None:
            await done.put(a + b)

        async with working(broker), asyncio.timeout(60):
            for number in range(5):
                task = await add.kiq(number, 1)
            assert sorted([await done.get() for _ in range(5)]) == [1, 2, 3, 4, 5]
        assert client.admin.lag("workers", topic="jobs").messages == 0
        [found] = client.admin.find("jobs", task.task_id)
        assert found.tags == add.task_name


async def test_a_task_waits_at_the_broker(ariane_broker: EmbeddedBroker) -> None:
    with ariane_broker.blocking_client() as client:
        client.admin.create_topic("taskiq", write_queue_count=1)
    done: asyncio.Queue[str] = asyncio.Queue()
    broker = ArianeBroker(ariane_broker.name_server)

    @broker.task
    async def remind(text: str) -> None:
        await done.put(text)

    async with working(broker), asyncio.timeout(60):
        await remind.kicker().with_labels(delay=600).kiq("later")
        await remind.kiq("now")
        assert await done.get() == "now"
        await ariane_broker.aio.advance(600)
        assert await done.get() == "later"


async def test_a_task_that_was_not_finished_goes_to_the_next_worker(
    ariane_broker: EmbeddedBroker,
) -> None:
    with ariane_broker.blocking_client() as client:
        client.admin.create_topic("taskiq", write_queue_count=1)
    done: asyncio.Queue[str] = asyncio.Queue()
    dying, living = (ArianeBroker(ariane_broker.name_server) for _ in range(2))

    @living.task(task_name="work")
    async def work(text: str) -> None:
        await done.put(text)

    async with asyncio.timeout(60):
        await dying.startup()
        async with working(living):
            await work.kiq("x")
            assert await done.get() == "x"
        await dying.kick(living.formatter.dumps(work.kicker()._prepare_message("y")))
        taken = dying.listen()
        assert b'"y"' in (await anext(taken)).data  # and is never acknowledged
        await taken.aclose()
        await dying.shutdown()
        async with working(living):
            assert await done.get() == "y"


async def test_a_broker_that_has_not_started_says_so() -> None:
    with pytest.raises(ClientError, match="not been started"):
        _ = ArianeBroker("127.0.0.1:1").client
