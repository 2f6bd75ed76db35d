"""A home for Spark whose workers start in a third of the time.

Spark puts `python/lib/pyspark.zip` in front of its workers' paths, and Python compiles what it
imports from a zip anew in every process: a second of CPU for each reader, writer and planner, of
which a micro-batch needs several. The home made here has links to everything of PySpark's own, but
in the place of that file a directory with PySpark as it is installed, compiled once and for all.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from zlib import crc32


def quick_home(package: Path, version: str, cache: Path) -> Path | None:
    """The home for this installation of PySpark, made if need be; None where none can be made."""
    archive = package / "python/lib/pyspark.zip"
    if not archive.is_file() or not (package / "jars").is_dir():
        return None  # not PySpark as pip installs it: Spark knows its own home then
    home = cache / f"spark-{version}-{crc32(os.fsencode(package)):08x}"  # one for each installation
    if home.is_dir():
        return home
    try:
        cache.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(prefix="making-", dir=cache))
        _link(package, making)
        with suppress(OSError):  # another process was quicker
            making.rename(home)
    except OSError:
        return None  # a disk that is full, or not ours to write: slower workers then
    return home if home.is_dir() else None


def _link(package: Path, home: Path) -> None:
    for part in package.iterdir():
        if part.name != "python":
            (home / part.name).symlink_to(part)
    library = home / "python/lib"
    library.mkdir(parents=True)
    for part in (package / "python/lib").iterdir():
        if part.name == "pyspark.zip":
            (library / part.name).mkdir()
            (library / part.name / "pyspark").symlink_to(package)
        else:
            (library / part.name).symlink_to(part)
