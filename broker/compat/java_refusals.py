"""Refusals whose text names classes of Java: clients and applications look for these names in error messages."""

from typing import Final

INCOMPATIBLE_SCHEMA: Final = "org.apache.pulsar.broker.service.schema.exceptions.IncompatibleSchemaException: "
"""The begin of a refusal that a producer gets: applications tell it from others by the name."""


def unreadable_schema(strategy: str, reader: str, writer: str) -> str:
    """The text of Avro's validation: `writer` cannot be read with `reader` under this strategy."""
    return (
        f"Error during schema compatibility check with strategy {strategy}: "
        "org.apache.avro.SchemaValidationException: Unable to read schema: "
        f"\n{writer}\nusing schema:\n{reader}"
    )


def invalid_package_domain(kind: str) -> str:
    """The text about a kind of package that does not exist."""
    return f"java.lang.IllegalArgumentException: Invalid package domain: '{kind}'"
