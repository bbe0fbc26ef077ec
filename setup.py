"""The compiled helper; everything else stands in pyproject.toml. Without a compiler the install goes on, slower."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "magnetar.protocol._speedups",
            ["magnetar/protocol/_speedups.c"],
            depends=["magnetar/protocol/_crc32c.h"],
            extra_compile_args=["-O3"],
            optional=True,
        )
    ]
)
