"""#10911: bytes of one connection's frames inside the message of another, planted and found.

One buffer serves every connection of a loop. That is right only as long as nothing keeps a view of
it past the call that filled it.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ariane.errors import ProtocolError
from ariane.protocol import command
from ariane.protocol.command import Command, CommandDecoder

CONNECTIONS = 5
FRAMES = 20


def check_frames_stay_apart(seed: int) -> None:
    """Feed frames of several connections through one buffer, cut anywhere; each must be whole."""
    random = Random(seed)
    scratch = bytearray(512)
    decoders = [CommandDecoder(scratch=scratch) for _ in range(CONNECTIONS)]
    sent = [
        [random.randbytes(random.choice([0, 3, 90, 700])) for _ in range(FRAMES)] for _ in decoders
    ]
    unsent = [
        [Command(code=10, opaque=i, body=body).encode() for i, body in enumerate(bodies)]
        for bodies in sent
    ]
    received: list[list[Command]] = [[] for _ in decoders]
    while any(unsent):
        i = random.choice([i for i, frames in enumerate(unsent) if frames])
        frame = unsent[i].pop(0)
        count = len(frame) if random.random() < 0.5 else random.randint(1, len(frame))
        count = min(count, len(scratch))
        if count < len(frame):
            unsent[i].insert(0, frame[count:])
        decoders[i].get_buffer(-1)[:count] = frame[:count]
        received[i] += decoders[i].received(count)
    assert [[bytes(found.body) for found in of_one] for of_one in received] == sent


def test_frames_of_different_connections_stay_apart() -> None:
    for seed in range(20):
        check_frames_stay_apart(seed)


def test_a_body_that_is_not_copied_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    command_of = command.command_of

    def uncopied(frame: Any) -> Command:
        made = command_of(frame)
        made.body = frame[len(frame) - len(made.body) :]
        return made

    monkeypatch.setattr(command, "command_of", uncopied)
    with pytest.raises(AssertionError, match="At index 0 diff"):
        check_frames_stay_apart(0)


def test_a_rest_that_is_not_copied_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The beginning of a frame is looked for in the buffer when its end comes."""
    take = CommandDecoder._take

    def from_the_buffer(self: CommandDecoder, data: memoryview) -> list[Command]:
        if self._pending:
            self._pending[:] = self._scratch[: len(self._pending)]
        return take(self, data)

    monkeypatch.setattr(CommandDecoder, "_take", from_the_buffer)
    with pytest.raises(ProtocolError, match="a frame may have"):
        check_frames_stay_apart(0)
