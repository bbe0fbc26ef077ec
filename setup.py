"""The compiled helpers; everything else stands in pyproject.toml. Without a compiler the install goes on, slower."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "magnetar.protocol._speedups",
            ["magnetar/protocol/_speedups.c"],
            depends=["magnetar/protocol/_crc32c.h", "magnetar/protocol/_long_copy.h", "magnetar/protocol/_murmur.h"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
        Extension(
            "magnetar.protocol._entry_columns",
            ["magnetar/protocol/_entry_columns.c"],
            depends=["magnetar/protocol/_crc32c.h", "magnetar/protocol/_wire_fields.h"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
        Extension(
            "magnetar.protocol._deliveries",
            ["magnetar/protocol/_deliveries.c"],
            depends=["magnetar/protocol/_wire_fields.h"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
        Extension(
            "magnetar.protocol._acks",
            ["magnetar/protocol/_acks.c"],
            depends=["magnetar/protocol/_wire_fields.h"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
        Extension(
            "magnetar.protocol._key_hashes",
            ["magnetar/protocol/_key_hashes.c"],
            depends=["magnetar/protocol/_murmur.h"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
        Extension(
            "magnetar.broker.dispatchers._picking",
            ["magnetar/broker/dispatchers/_picking.c"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
        Extension(
            "magnetar.bookkeeper.wire._add_frames",
            ["magnetar/bookkeeper/wire/_add_frames.c"],
            depends=["magnetar/protocol/_crc32c.h", "magnetar/protocol/_long_copy.h"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
        Extension(
            "magnetar.storage.embedded.journal._frame_writer",
            ["magnetar/storage/embedded/journal/_frame_writer.c"],
            depends=["magnetar/protocol/_crc32c.h", "magnetar/protocol/_long_copy.h"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
        Extension(
            "magnetar.storage.embedded._direct_reader",
            ["magnetar/storage/embedded/_direct_reader.c"],
            depends=["magnetar/protocol/_long_copy.h"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
        Extension(
            "magnetar.converters.kafka_entry._slots",
            ["magnetar/converters/kafka_entry/_slots.c"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
        Extension(
            "magnetar.delayed._sorting",
            ["magnetar/delayed/_sorting.c"],
            extra_compile_args=["-O3"],
            optional=True,
        ),
    ]
)
