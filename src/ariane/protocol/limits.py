"""How much of anything a peer may send before it is refused. One place, so that it can be read."""

from __future__ import annotations

from typing import Final

FRAME_BYTES_MAX: Final = 16 << 20  # whole frame; every RocketMQ peer closes beyond it
# What a server reads of a header. Properties of the longest legal length must fit, each byte of
# them escaped as six; and longer ones, so that they can be answered with what is wrong.
HEADER_BYTES_MAX: Final = 256 << 10
REPLY_HEADER_BYTES_MAX: Final = 8 << 20  # a batch reply names every message in its header
EXT_FIELDS_MAX: Final = 128
DEPTH_MAX: Final = 16  # nesting of JSON, in headers and bodies
ODD_BYTES_MAX: Final = 256 << 10  # JSON that is not standard and takes a slow reader
INFLATED_BYTES_MAX: Final = 64 << 20
INFLATE_RATIO_MAX: Final = 100
SHORT_MAX: Final = 0x7FFF
