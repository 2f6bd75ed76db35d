"""Ten thousand crashes: every image is opened, and every promise is kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .campaign import KINDS, Campaign

SEED = 20_260_301
IMAGES_PER_KIND = 1700  # times six kinds


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_no_crash_breaks_a_promise(name: str, say: Callable[[str], None]) -> None:
    campaign = Campaign(KINDS[name], SEED, IMAGES_PER_KIND).run()
    assert campaign.image_count >= IMAGES_PER_KIND
    assert len(campaign.generations) >= 4  # crashes of what came back from crashes
    say(str(campaign))


def test_a_seed_gives_the_same_lives_again() -> None:
    first, second = (Campaign(KINDS["sync, background"], 7, 60).run() for _ in range(2))
    assert first.operations == second.operations
    assert first.generations == second.generations
