"""Files of a lake, on any file system that Spark can reach: through Hadoop, in the driver's JVM.

The one thing asked of a file system is that a file can be put into place whole unless there is one
already. On a local disk that is a hard link; elsewhere it is Hadoop's rename, which on HDFS and its
like refuses to replace.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from ariane.spark.pipelines.manifest import LakeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_PREFIX: Final = "file:"
DRAFT: Final = ".draft"  # what a file ends with that is not in place yet


class Found(NamedTuple):
    """A file below the root."""

    path: str
    byte_count: int


class Files:
    """A directory and what is below it; paths are relative to it, with slashes."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._jvm: Any = getattr(spark, "_jvm", None)
        if self._jvm is None:
            raise LakeError("a lake needs a classic Spark session; Spark Connect reaches no files")
        whole = root if urlsplit(root).scheme else str(Path(root).absolute())
        path = self._jvm.org.apache.hadoop.fs.Path(whole)
        self._fs: Any = path.getFileSystem(_hadoop_settings(spark))
        self.root: str = str(self._fs.makeQualified(path).toString()).rstrip("/")
        self.is_local = self.root.startswith(LOCAL_PREFIX)

    def uri(self, path: str) -> str:
        """The whole address, as Spark's readers and writers take it."""
        return f"{self.root}/{path}" if path else self.root

    def exists(self, path: str) -> bool:
        """Whether there is such a file or directory."""
        return bool(self._fs.exists(self._path(path)))

    def names(self, path: str) -> list[str]:
        """What is in a directory, sorted; nothing when there is none."""
        if not self.exists(path):
            return []
        statuses = self._fs.listStatus(self._path(path))
        return sorted(str(status.getPath().getName()) for status in statuses)

    def walk(self, path: str = "") -> list[Found]:
        """Every file below a directory but for what begins with _ or a dot, as Spark sees it."""
        if not self.exists(path):
            return []
        found: list[Found] = []
        waiting = self._fs.listFiles(self._path(path), True)
        while waiting.hasNext():
            status = waiting.next()
            relative = str(status.getPath().toString()).removeprefix(self.root + "/")
            parts = relative.removeprefix(path).strip("/").split("/")
            if not any(part.startswith(("_", ".")) for part in parts):
                found.append(Found(relative, int(status.getLen())))
        return sorted(found)

    def read(self, path: str) -> bytes:
        """A whole file; FileNotFoundError when there is none."""
        if self.is_local:
            return self.local(path).read_bytes()
        if not self.exists(path):
            raise FileNotFoundError(self.uri(path))
        stream = self._fs.open(self._path(path))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def put(self, path: str, data: bytes) -> bool:
        """Put a file into place whole; False, and nothing done, when there is one already."""
        draft = f"{path}.{uuid.uuid4().hex}{DRAFT}"
        if self.is_local:
            return _linked(self.local(draft), self.local(path), data)
        stream = self._fs.create(self._path(draft), True)
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()
        if not self.exists(path) and self._fs.rename(self._path(draft), self._path(path)):
            return True
        self.delete(draft)
        return False

    def move(self, path: str, to: str) -> None:
        """Give a file another name; there must be none of that name."""
        target = self._path(to)
        self._fs.mkdirs(target.getParent())
        if self.exists(to) or not self._fs.rename(self._path(path), target):
            raise LakeError(f"{self.uri(path)} could not be moved to {to}; is there one already?")

    def delete(self, path: str) -> None:
        """Delete a file, or a directory with all that is in it; it may be gone already."""
        self._fs.delete(self._path(path), True)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.uri(path))

    def local(self, path: str) -> Path:
        """Where it is for programs of this machine, if the root is on a local disk."""
        assert self.is_local
        return Path(self.uri(path).removeprefix(LOCAL_PREFIX))


def _hadoop_settings(spark: SparkSession) -> Any:
    context: Any = spark.sparkContext
    return context._jsc.hadoopConfiguration()


def _linked(draft: Path, path: Path, data: bytes) -> bool:
    draft.parent.mkdir(parents=True, exist_ok=True)
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    return True
