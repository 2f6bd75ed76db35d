"""A stop writes down whatever can be written."""

from __future__ import annotations

import pytest

from ariane.broker.persistence import SavedFile
from ariane.testing import EmbeddedBroker


@pytest.mark.provokes("a step of stopping failed")
def test_a_file_that_cannot_be_saved_keeps_no_other_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    save_now = SavedFile.save_now

    def unless_groups(self: SavedFile) -> None:
        if "subscriptionGroup" in self.path:
            raise RecursionError("nobody foresaw")
        save_now(self)

    with EmbeddedBroker() as broker:
        broker.call(lambda: broker.broker.state.offsets.commit("orders", "readers", 0, 7))
        with monkeypatch.context() as patch:
            patch.setattr(SavedFile, "save_now", unless_groups)
            broker.restart()
        state = broker.broker.state
        assert broker.call(lambda: state.offsets.get("orders", "readers", 0)) == 7
        assert not broker.call(lambda: state.store.was_killed)
