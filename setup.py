"""Builds the compiled kernel; everything else about the package is in pyproject.toml."""

from Cython.Build import cythonize
from setuptools import Extension, setup

FLAGS = ["-O3", "-std=gnu11", "-fno-strict-aliasing", "-Wno-unused-function"]

setup(
    ext_modules=cythonize(
        [
            Extension(
                f"ariane.kernel.{name}",
                [f"src/ariane/kernel/{name}.pyx"],
                extra_compile_args=FLAGS,
            )
            for name in MODULES
        ],
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
        },
    )
)
