"""`ariane tail` goes on past messages that cannot be read as their producers meant them."""

import asyncio
import sys

import pytest

from ariane import Client
from ariane.cli import main
from ariane.codes import RequestCode
from ariane.protocol.command import request
from ariane.protocol.headers.send import SendHeaderV2
from ariane.protocol.message import BatchEntry, encode_batch
from ariane.testing import EmbeddedBroker


async def send_odd(broker: EmbeddedBroker) -> None:
    """One message whose tags are GBK, one that only says it is compressed, and one like others."""
    async with Client(broker.name_server) as client:
        await client.admin.create_topic("t", write_queue_count=1)
        tagged = BatchEntry(body=b"tagged", properties="TAGS\x01\u20ac\x02")
        batch = encode_batch([tagged]).replace(b"\xe2\x82\xac", b"\xd6\xd0!")
        for body, is_batch, flag in ((batch, True, 0), (b"not zlib", False, 0x301)):
            code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
            header = SendHeaderV2(
                group="p", topic="t", queue_id=0, system_flag=flag, born_at_ms=1, flag=0,
                is_batch=is_batch,
            )  # fmt: skip
            answer = await client.session.call(broker.address, request(code, header, body))
            assert answer.code == 0
        await client.send("t", b"after")


@pytest.mark.parametrize("output", ["table", "json"])
def test_tail_goes_on(
    ariane_broker: EmbeddedBroker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    output: str,
) -> None:
    asyncio.run(send_odd(ariane_broker))
    words = ["tail", "t", "--from-start", "--count", "3", "--output", output]
    monkeypatch.setattr(
        sys, "argv", ["ariane", *words, "--namesrv", str(ariane_broker.name_server)]
    )
    with pytest.raises(SystemExit) as left:
        main.run()
    lines = capsys.readouterr().out.splitlines()
    assert not left.value.code
    for line, words_of_it in zip(
        lines, (("\ufffd\ufffd!", "tagged"), ("not zlib",), ("after",)), strict=True
    ):
        assert all(word in line for word in words_of_it)
