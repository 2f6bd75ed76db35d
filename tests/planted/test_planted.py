"""The campaign is worth something only if it finds what is known to be there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.crash.campaign import ACTIONS, KINDS, Campaign

from .bugs import BUGS

IMAGES_MAX = 10_000  # most need a few dozen
SEED = 1
# What a bug raises that no longer fits the code it patches; it was not found then.
PATCH_IS_STALE = (TypeError, AttributeError, NameError)


@pytest.mark.slow
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(
    name: str, monkeypatch: pytest.MonkeyPatch, say: Callable[[str], None]
) -> None:
    bug = BUGS[name]
    bug.plant(monkeypatch)
    campaign = Campaign(KINDS[bug.kind], SEED, IMAGES_MAX, weights=ACTIONS | bug.weights)
    with pytest.raises(AssertionError) as found:
        campaign.run()
    assert not isinstance(found.value.__cause__, PATCH_IS_STALE), "the bug itself is broken"
    told = str(found.value).partition("; seed")[0]
    assert bug.words in told, f"found by other words: {told}"
    say(f"{name}: image {campaign.image_count}, {told[:90]}")
