"""Builds the compiled kernel; everything else about the package is in pyproject.toml."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

CORES = os.cpu_count() or 1
FLAGS = ["-O3", "-std=gnu11", "-fno-strict-aliasing", "-Wno-unused-function"]
SOURCES = sorted(
    Path("src/ariane").rglob("*.pyx")
)  # the kernel, and what is compiled beside its user

if not SOURCES:
    raise SystemExit("no .pyx file under src/ariane: run setup.py in the project's root")

setup(
    ext_modules=cythonize(
        [
            Extension(
                ".".join(path.relative_to("src").with_suffix("").parts),
                [str(path)],
                include_dirs=["src/ariane/kernel"],
                extra_compile_args=FLAGS,
            )
            for path in SOURCES
        ],
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
        },
        nthreads=CORES,
    ),
    options={"build_ext": {"parallel": CORES}},
)
