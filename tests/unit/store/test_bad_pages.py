"""A page of the log that the disk cannot give costs the messages there, never the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# A file cut short under its map raises the signal that a bad sector does.
SCRIPT = """
import os, sys
from ariane.clock import ManualClock
from ariane.config import StoreConfig
from ariane.disk import RealDisk
from ariane.kernel.bad_pages import bad_pages
from ariane.protocol.message import decode_records
from ariane.store.messages import NewMessage
from ariane.store.store import Store

root = sys.argv[1]
config = StoreConfig(
    segment_bytes=16384, queue_file_bytes=6000, index_slot_count=7, index_entry_count=500,
    message_bytes_max=4096, disk_stop_ratio=1.0, force_clean_enabled=False,
)
store = Store.open(config, RealDisk(root), ManualClock(), store_host=("127.0.0.1", 10911))
store.start()
placed = [
    store.append(NewMessage(
        topic="T", queue_id=0, body=b"%d " % i * 200, properties=b"", born_at_ms=1,
        born_host=("10.0.0.7", 5555),
    ))
    for i in range(60)
]
store.flush_now()
os.truncate(f"{root}/commitlog/{16384:020d}", 4096)  # the second segment has lost three pages
bulk = store.bulk_read("T", 0, 0, 60, bytes_max=1 << 20)
bulk.find()
in_bulk = [record.queue_offset for record in decode_records(bulk.frame(b""))]
first, found = 0, []
while first < store.max_offset("T", 0):
    part = store.read("T", 0, first, count_max=1)
    found += [record.queue_offset for record in decode_records(part.body)]
    assert part.next_offset > first
    first = part.next_offset
gone = {
    i for i, p in enumerate(placed)
    if p.log_offset < 2 * 16384 and 16384 + 4096 < p.log_offset + p.size and p.log_offset >= 16384
}
assert gone and found == [i for i in range(60) if i not in gone], (gone, found)
assert in_bulk == found, in_bulk
assert bad_pages() == 3, bad_pages()
print("alive")
os._exit(0)
"""


def test_a_lost_page_is_passed_over(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "alive\n"), ended.stderr
