"""The checkpoint file: Apache's numbers at the front, a claim that holds only with them."""

from __future__ import annotations

import struct
from random import Random

import pytest

from ariane.disk import CrashMode, SimulatedDisk
from ariane.store.checkpoint import CLAIM_PLACES, Checkpoint, CheckpointFile, Claim, decode

CLAIM = Claim(log_offset=1000, queue_count=2, queue_entries=30, index_name=20260101, index_next=7)


def saved(*checkpoints: Checkpoint) -> SimulatedDisk:
    disk = SimulatedDisk()
    file = CheckpointFile(disk)
    for checkpoint in checkpoints:
        file.save(checkpoint)
    return disk


def test_the_first_numbers_are_apaches() -> None:
    disk = saved(Checkpoint(1, 2, 3, 4, 5))
    assert disk.read("checkpoint") == struct.pack(">qqqqq", 1, 2, 3, 4, 5) + bytes(4056)
    assert CheckpointFile(disk).load() == Checkpoint(1, 2, 3, 4, 5)


def test_a_claim_comes_back() -> None:
    found = CheckpointFile(saved(Checkpoint(7, 7, 7, claim=CLAIM))).load()
    assert found.claim is not None
    assert found.claim.log_offset == 1000 and found.claim.index_next == 7


def test_a_missing_or_short_file_says_nothing() -> None:
    disk = SimulatedDisk()
    assert CheckpointFile(disk).load() == Checkpoint()
    disk.write("checkpoint", b"short")
    assert CheckpointFile(disk).load() == Checkpoint()


@pytest.mark.parametrize("at", [0, 8, 16], ids=["log time", "queue time", "index time"])
def test_a_claim_does_not_outlive_the_times_it_came_with(at: int) -> None:
    """Apache's broker moves the times and knows nothing of claims."""
    data = bytearray(saved(Checkpoint(7, 7, 7, claim=CLAIM)).read("checkpoint"))
    struct.pack_into(">q", data, at, 8)
    assert decode(bytes(data)).claim is None


@pytest.mark.parametrize("place", CLAIM_PLACES)
def test_a_damaged_claim_does_not_count(place: int) -> None:
    data = bytearray(
        saved(Checkpoint(7, 7, 7, claim=CLAIM), Checkpoint(7, 7, 7, claim=CLAIM)).read("checkpoint")
    )
    for other in CLAIM_PLACES:
        data[other + 20] ^= 1
    assert decode(bytes(data)).claim is None


def test_a_claim_is_taken_back() -> None:
    disk = saved(Checkpoint(claim=CLAIM), Checkpoint())
    assert disk.read("checkpoint") == bytes(4096)


def test_one_claim_holds_at_every_moment_of_a_save() -> None:
    disk = saved(Checkpoint(1, 1, 1, claim=CLAIM))
    seen = set()

    def look(kind: str, path: str) -> None:
        for seed in range(50):
            for mode in CrashMode:
                claim = CheckpointFile(disk.crash_image(Random(seed), mode)).load().claim
                assert claim is not None
                seen.add(claim.log_offset)

    file = CheckpointFile(disk)
    disk.on_operation = look
    for log_offset in (2000, 3000, 4000):
        claim = Claim(log_offset, 2, 30, 20260101, 7)
        file.save(Checkpoint(log_offset, 1, 1, claim=claim))
    assert seen == {1000, 2000, 3000, 4000}


def test_recovery_by_times_starts_three_seconds_early() -> None:
    assert Checkpoint(log_ms=10_000, queues_ms=9_000).recover_from_ms == 6_000
    assert Checkpoint(log_ms=2_000, queues_ms=9_000).recover_from_ms == 0
