"""A remoting command, the frame that carries it, and the decoder that finds frames in a stream.

A frame is `length, serializer << 24 | header length, header, body`, big-endian; the header is JSON
or RocketMQ's own binary form, chosen frame by frame. The invariant: no length is believed before
it has been checked, and a decoder holds no more bytes than its peer has really sent.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, Protocol

from ariane.codes import PROTOCOL_VERSION, FrameFlag, RequestCode, ResponseCode
from ariane.errors import FrameError, ProtocolError
from ariane.protocol import binary_header, json_header
from ariane.protocol.headers import Header, encode_header
from ariane.protocol.json_header import HeaderFields
from ariane.protocol.limits import FRAME_BYTES_MAX, HEADER_BYTES_MAX

LENGTHS: Final = struct.Struct(">iI")
SCRATCH_BYTES: Final = 256 << 10

_RESPONSE: Final = int(FrameFlag.RESPONSE)
_ONE_WAY: Final = int(FrameFlag.ONE_WAY)


class Serializer(IntEnum):
    """How a frame's header is written."""

    JSON = 0
    ROCKETMQ = 1


_SERIALIZERS: Final = tuple(Serializer)


class Command:
    """One request or response; `ext` holds the custom header as text by its wire names."""

    __slots__ = (
        "body",
        "code",
        "ext",
        "flag",
        "language",
        "opaque",
        "remark",
        "serializer",
        "version",
    )

    def __init__(
        self,
        code: int,
        *,
        opaque: int = 0,
        flag: int = 0,
        version: int = PROTOCOL_VERSION,
        language: str = "JAVA",
        remark: str | None = None,
        ext: dict[str, str] | None = None,
        body: bytes = b"",
        serializer: Serializer = Serializer.JSON,
    ) -> None:
        self.code = code
        self.opaque = opaque
        self.flag = flag
        self.version = version
        self.language = language
        self.remark = remark
        self.ext = {} if ext is None else ext
        self.body = body
        self.serializer = serializer

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return self.flag & _RESPONSE != 0

    @property
    def is_one_way(self) -> bool:
        """Whether the sender wants no answer; it must never get one."""
        return self.flag & _ONE_WAY != 0

    def encode(self) -> bytes:
        """The whole frame."""
        encode = json_header.encode if self.serializer == 0 else binary_header.encode
        header = encode(
            HeaderFields(
                self.code,
                self.language,
                self.version,
                self.opaque,
                self.flag,
                self.remark,
                self.ext,
            )
        )
        word = self.serializer << 24 | len(header)
        return LENGTHS.pack(4 + len(header) + len(self.body), word) + header + self.body

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Command):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in Command.__slots__)

    __hash__ = None  # type: ignore[assignment]  # commands change; equality is for tests

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "one-way" if self.is_one_way else "request"
        return (
            f"Command({kind} code={self.code} opaque={self.opaque} remark={self.remark!r} "
            f"ext={self.ext!r} body={len(self.body)} bytes)"
        )


def request(
    code: RequestCode | int,
    header: Header | None = None,
    body: bytes = b"",
    *,
    one_way: bool = False,
    opaque: int = 0,
) -> Command:
    """A request; the connection that sends it may give it its opaque."""
    return Command(
        int(code),
        opaque=opaque,
        flag=_ONE_WAY if one_way else 0,
        ext=None if header is None else encode_header(header),
        body=body,
    )


def reply(
    to: Command,
    code: ResponseCode | int = ResponseCode.SUCCESS,
    header: Header | None = None,
    body: bytes = b"",
    remark: str | None = None,
) -> Command:
    """The response to `to`, in the serialisation it came in."""
    return Command(
        int(code),
        opaque=to.opaque,
        flag=_RESPONSE,
        remark=remark,
        ext=None if header is None else encode_header(header),
        body=body,
        serializer=to.serializer,
    )


class ByteBudget:
    """Bytes of unfinished frames that many decoders may hold together."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0


class FrameReader(Protocol):
    """What a connection needs of its decoder."""

    @property
    def frame_count(self) -> int:
        """Frames completed so far."""
        ...

    @property
    def partial_bytes(self) -> int:
        """Bytes held of a frame that is not complete."""
        ...

    def get_buffer(self, size_hint: int) -> memoryview:
        """Where the next bytes of the stream go."""
        ...

    def received(self, byte_count: int) -> list[Command]:
        """Commands completed by the bytes just put into the buffer.

        Frames before a bad one are returned first; call again with 0 until the list is empty, and
        the error is raised in its place in the stream.
        """
        ...

    def close(self) -> None:
        """Forget what is held."""
        ...


class CommandDecoder:
    """Bytes in, commands out. Knows nothing of sockets.

    `scratch` may be shared by all decoders of one event loop, since its bytes are used up within
    `received`; so an idle connection costs no buffer.
    """

    __slots__ = (
        "_budget",
        "_error",
        "_frame_bytes_max",
        "_header_bytes_max",
        "_pending",
        "_scratch",
        "frame_count",
        "partial_bytes",
    )

    def __init__(
        self,
        *,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        header_bytes_max: int = HEADER_BYTES_MAX,
        scratch: bytearray | None = None,
        budget: ByteBudget | None = None,
    ) -> None:
        self.frame_count = 0
        self.partial_bytes = 0
        self._frame_bytes_max = frame_bytes_max
        self._header_bytes_max = header_bytes_max
        self._scratch = memoryview(bytearray(SCRATCH_BYTES) if scratch is None else scratch)
        self._budget = ByteBudget(1 << 62) if budget is None else budget
        self._pending = bytearray()
        self._error: ProtocolError | None = None

    def get_buffer(self, size_hint: int) -> memoryview:
        """Where the next bytes of the stream go; good until `received` is called."""
        return self._scratch

    def received(self, byte_count: int) -> list[Command]:
        """Commands completed by the bytes just put into the buffer; see `FrameReader`."""
        return self._take(self._scratch[:byte_count])

    def feed(self, data: bytes | bytearray | memoryview) -> list[Command]:
        """Commands completed by `data`, which may be of any length."""
        return self._take(memoryview(data))

    def close(self) -> None:
        """Forget what is held."""
        self._hold(b"")

    def _take(self, data: memoryview) -> list[Command]:
        if self._error is not None:
            raise self._error
        if not self._pending:
            commands, used = self._split(data)
            self._hold(data[used:])
            return commands
        self._pending += data
        self._count()
        commands, used = self._split(memoryview(self._pending))
        if used:
            self._hold(self._pending[used:])
        return commands

    def _split(self, data: memoryview) -> tuple[list[Command], int]:
        """All whole commands at the head of `data`, and how many bytes they took."""
        commands: list[Command] = []
        position = 0
        try:
            while len(data) - position >= LENGTHS.size:
                end = self._frame_end(data, position)
                if end > len(data):
                    break
                commands.append(command_of(data[position:end]))
                position = end
        except ProtocolError as error:
            # Kept without its traceback, which would keep the bytes alive too.
            self._error = error.with_traceback(None)
            if not commands:
                raise
            position = len(data)
        self.frame_count += len(commands)
        return commands, position

    def _frame_end(self, data: memoryview, position: int) -> int:
        """Where the frame at `position` ends; raises FrameError when its lengths cannot be true."""
        size, word = LENGTHS.unpack_from(data, position)
        header_bytes = word & 0xFFFFFF
        if not 4 + header_bytes <= size <= self._frame_bytes_max - 4:
            raise FrameError(
                f"a frame of {size} bytes with a header of {header_bytes}; "
                f"a frame may have {self._frame_bytes_max} bytes and must hold its header"
            )
        if header_bytes > self._header_bytes_max:
            raise FrameError(
                f"a header of {header_bytes} bytes; at most {self._header_bytes_max} are read"
            )
        if word >> 24 > Serializer.ROCKETMQ:
            raise FrameError(
                f"serializer {word >> 24} is unknown; 0 is JSON, 1 is RocketMQ's binary form"
            )
        return int(position + 4 + size)

    def _hold(self, data: memoryview | bytearray | bytes) -> None:
        if self._pending or data:
            self._pending = bytearray(data)
            self._count()

    def _count(self) -> None:
        """Keep `partial_bytes` and the shared budget in step with what is held."""
        held = len(self._pending)
        self._budget.used += held - self.partial_bytes
        self.partial_bytes = held
        if self._budget.used > self._budget.limit:
            self._error = FrameError(
                f"unfinished frames of all peers hold more than {self._budget.limit} bytes"
            )
            raise self._error


def command_of(frame: memoryview | bytes) -> Command:
    """The command in one whole frame; raises BadHeader."""
    word = LENGTHS.unpack_from(frame)[1]
    body_at = LENGTHS.size + (word & 0xFFFFFF)
    header = bytes(frame[LENGTHS.size : body_at])
    serializer = _SERIALIZERS[word >> 24]
    decode = json_header.decode if serializer == 0 else binary_header.decode
    code, language, version, opaque, flag, remark, ext = decode(header)
    command = Command.__new__(Command)
    command.code = code
    command.language = language
    command.version = version
    command.opaque = opaque
    command.flag = flag
    command.remark = remark
    command.ext = ext
    command.body = bytes(frame[body_at:])
    command.serializer = serializer
    return command
