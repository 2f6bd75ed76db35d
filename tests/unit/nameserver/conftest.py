"""A started name server and one peer of it, for every test that asks."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.nameserver.world import Peer, World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    await world.server.start()
    yield world
    await world.close()


@pytest.fixture
async def peer(world: World) -> Peer:
    return await world.peer()
