"""Reads the captured frames. Bodies that were cut when captured are left out on request."""

from __future__ import annotations

import base64
import functools
import json
from dataclasses import dataclass
from pathlib import Path

from ariane.protocol.command import Command

HERE = Path(__file__).parent
CAPTURES = ("java-client", "go-client")


@dataclass(frozen=True)
class GoldenFrame:
    """One captured frame."""

    capture: str
    sender: str
    connection: int
    header: dict[str, object]
    body: bytes
    body_is_whole: bool
    answers: int | None

    @property
    def code(self) -> int:
        """The request code, or that of the request this answers."""
        code = self.header["code"] if self.answers is None else self.answers
        assert isinstance(code, int)
        return code

    @property
    def is_success(self) -> bool:
        return self.answers is not None and self.header["code"] == 0

    @property
    def ext(self) -> dict[str, str]:
        ext = self.header.get("extFields") or {}
        assert isinstance(ext, dict)
        return ext

    def wire(self) -> bytes:
        """The frame as it crossed the wire."""
        header = json.dumps(self.header, separators=(",", ":"), ensure_ascii=False).encode()
        size = 4 + len(header) + len(self.body)
        return size.to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + self.body

    def command(self) -> Command:
        """What the frame says, put together by hand."""
        header = self.header
        return Command(
            header["code"],  # type: ignore[arg-type]
            opaque=header["opaque"],  # type: ignore[arg-type]
            flag=header["flag"],  # type: ignore[arg-type]
            version=header["version"],  # type: ignore[arg-type]
            language=str(header["language"]),
            remark=header.get("remark"),  # type: ignore[arg-type]
            ext=dict(self.ext),
            body=self.body,
        )


@functools.cache
def golden_frames() -> tuple[GoldenFrame, ...]:
    """Every captured frame."""
    return tuple(
        _frame(capture, json.loads(line))
        for capture in CAPTURES
        for line in (HERE / f"{capture}.jsonl").read_text().splitlines()
    )


def golden_config(name: str) -> bytes:
    """A captured configuration file."""
    return (HERE / "config" / name).read_bytes()


def _frame(capture: str, entry: dict[str, object]) -> GoldenFrame:
    body = entry.get("body") or {"text": ""}
    assert isinstance(body, dict)
    data = body["text"].encode() if "text" in body else base64.b64decode(body["base64"])
    header, answers = entry["header"], entry.get("answers")
    assert isinstance(header, dict)
    assert answers is None or isinstance(answers, int)
    return GoldenFrame(
        capture=capture,
        sender=str(entry["from"]),
        connection=int(str(entry["connection"])),
        header=header,
        body=data,
        body_is_whole=len(data) == entry["body_bytes"],
        answers=answers,
    )
