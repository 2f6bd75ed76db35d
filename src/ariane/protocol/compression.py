"""Bodies made smaller for the way, and inflated again with a bound on what may come out.

The system flag of a message says whether its body is compressed, and how.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Final, Literal

import lz4.frame  # type: ignore[import-untyped]  # has no stubs

from ariane.codes import SystemFlag
from ariane.errors import ProtocolError

FREE_BYTES: Final = 1 << 20  # up to this size no ratio is too good to be true

_TYPE_MASK: Final = 0x700  # bits 8-10 of a message's system flag
_LZ4: Final = 0x100
_ZSTD: Final = 0x200
_ZLIB: Final = 0x300  # readers take 0 for it too, as old producers wrote it
_LEVEL: Final = 5  # Java's

Compression = Literal["zlib", "lz4", "zstd"]
COMPRESSIONS: Final[Mapping[Compression, int]] = {
    "zlib": _ZLIB | SystemFlag.COMPRESSED,
    "lz4": _LZ4 | SystemFlag.COMPRESSED,
    "zstd": _ZSTD | SystemFlag.COMPRESSED,
}  # by name, the system flag of bodies so compressed; all readers know zlib, some only that


def compress_body(body: bytes, kind: Compression) -> bytes:
    """The body compressed; whether that is shorter is for the caller to see."""
    if kind == "lz4":
        packed: bytes = lz4.frame.compress(body)
        return packed
    if kind == "zstd":
        import zstandard  # noqa: PLC0415 - few producers use it

        return zstandard.ZstdCompressor(level=_LEVEL).compress(body)
    return zlib.compress(body, _LEVEL)


def inflate_body(body: bytes, system_flag: int, *, size_max: int) -> bytes:
    """A message body as its producer had it; raises ProtocolError when it does not fit."""
    kind = system_flag & _TYPE_MASK
    if kind == _LZ4:
        return _inflate_lz4(body, size_max)
    if kind == _ZSTD:
        return _inflate_zstd(body, size_max)
    return inflate_zlib(body, size_max=size_max)


def inflate_zlib(data: bytes, *, size_max: int, ratio_max: int | None = None) -> bytes:
    """A whole zlib stream; raises ProtocolError when it is broken or a bomb."""
    if ratio_max is not None:
        size_max = min(size_max, max(FREE_BYTES, len(data) * ratio_max))
    stream = zlib.decompressobj()
    try:
        inflated = stream.decompress(data, size_max + 1)
    except zlib.error as error:
        raise ProtocolError(f"a zlib stream cannot be inflated: {error}") from error
    _check(len(inflated), size_max)
    if not stream.eof:
        raise ProtocolError("a zlib stream is cut short")
    return inflated


def _inflate_lz4(data: bytes, size_max: int) -> bytes:
    stream = lz4.frame.LZ4FrameDecompressor()
    try:
        inflated: bytes = stream.decompress(data, max_length=size_max + 1)
    except (RuntimeError, EOFError, MemoryError) as error:
        raise ProtocolError(f"an LZ4 frame cannot be inflated: {error}") from error
    _check(len(inflated), size_max)
    if not stream.eof:
        raise ProtocolError("an LZ4 frame is cut short")
    return inflated


def _inflate_zstd(data: bytes, size_max: int) -> bytes:
    try:
        import zstandard  # noqa: PLC0415 - an extra: few producers use it
    except ImportError as error:
        raise ProtocolError(
            "a body is compressed with Zstandard; install zstandard to read it"
        ) from error
    try:
        frame = zstandard.get_frame_parameters(data)
        if frame.content_size != zstandard.CONTENTSIZE_UNKNOWN:
            _check(frame.content_size, size_max)
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=size_max)
    except zstandard.ZstdError as error:
        raise ProtocolError(f"a Zstandard frame cannot be inflated: {error}") from error


def _check(size: int, size_max: int) -> None:
    if size > size_max:
        raise ProtocolError(f"compressed data inflates to more than the {size_max} bytes allowed")
