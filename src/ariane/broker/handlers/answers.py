"""Answers to changes of configuration: sent once the change will survive a kill, and is known."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ariane.broker.persistence import SavedFile
from ariane.broker.requests import Reply, Request
from ariane.broker.state import BrokerState
from ariane.codes import ResponseCode


def answer_when_saved(request: Request[Any], *files: SavedFile) -> None:
    """Answer once the files behind changed tables are on disk, or one cannot be put there."""

    def saved(rest: tuple[SavedFile, ...], fault: Exception | None) -> None:
        if rest and fault is None:
            rest[0].when_saved(partial(saved, rest[1:]))
        else:
            request.answer(outcome_of(fault))

    saved(files, None)


def answer_when_routed(request: Request[Any], state: BrokerState) -> None:
    """Answer once changed topics are on disk and the name servers have heard of them."""
    when_routed(state, lambda fault: request.answer(outcome_of(fault)))


def when_routed(state: BrokerState, callback: Callable[[Exception | None], None]) -> None:
    """Call back once changed topics are on disk and the name servers have heard of them."""

    def saved(fault: Exception | None) -> None:
        if state.registration is None or fault is not None:
            callback(fault)
        else:
            state.registration.when_told(lambda: callback(None))

    state.topics.file.when_saved(saved)


def outcome_of(fault: Exception | None) -> Reply:
    """What to say when a file was written, or was not."""
    if fault is None:
        return Reply.of()
    remark = f"changed in memory, but not saved yet: {fault}; it will be tried again"
    return Reply.refusal(ResponseCode.SYSTEM_ERROR, remark)
