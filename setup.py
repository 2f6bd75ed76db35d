"""Builds the compiled kernel; everything else about the package is in pyproject.toml."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

CORES = os.cpu_count() or 1
FLAGS = ["-O3", "-std=gnu11", "-fno-strict-aliasing", "-Wno-unused-function"]

setup(
    ext_modules=cythonize(
        [
            Extension(f"ariane.kernel.{path.stem}", [str(path)], extra_compile_args=FLAGS)
            for path in sorted(Path("src/ariane/kernel").glob("*.pyx"))
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
