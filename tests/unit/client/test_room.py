"""A bound on what is under way."""

import asyncio

import pytest

from ariane.client.room import Room


async def test_who_finds_it_full_waits_until_some_has_ended() -> None:
    room = Room(10)
    room.take(10)
    assert room.is_full
    entered: list[int] = []

    async def enter(number: int) -> None:
        await room.wait()
        room.take(6)
        entered.append(number)

    waiting = [asyncio.create_task(enter(number)) for number in range(3)]
    await asyncio.sleep(0)
    assert entered == []
    room.give(4)  # 6 are left, so one fits, and with it it is full again
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert entered == [0]
    waiting[1].cancel()
    room.give(12)
    await asyncio.gather(*waiting, return_exceptions=True)
    assert entered == [0, 2]


async def test_room_is_given_back() -> None:
    room = Room(1)
    await room.wait()
    room.take(5)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await room.wait()
    room.give(5)
    await room.wait()
    assert room.used == 0
