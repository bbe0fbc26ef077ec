"""The schemas of a replay's source topics, registered with its target: every version, in their order.

A payload was encoded under the version its message names, so a copy has to name the same definition by the number that
it has in the target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from magnetar.pipeline.errors import CatalogError, CatalogUnavailableError
from magnetar.pipeline.option_table import OptionError
from magnetar.protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from magnetar.pipeline.catalog import Catalog

COLUMN = "__schemaVersion"


def copy_schemas(source: Catalog, target: Catalog, topics: Iterable[str], into: str) -> dict[str, dict[bytes, bytes]]:
    """Register all versions of the topics' schemas with `into`.

    Returns: for each topic with a schema, by its name without partition, the target's version of each of its versions.
    Raises:  OptionError when the target refuses a schema, CatalogError.
    """
    found: dict[str, dict[bytes, bytes]] = {}
    for name in sorted({str(TopicName.parse(topic).base) for topic in topics}):
        newest = source.schema(name)
        if newest is None:
            continue
        versions: dict[bytes, bytes] = {}
        for number in range(int(newest["version"]) + 1):
            schema = source.schema(name, version=number)
            if schema is None or schema["type"] == "DELETE":
                continue
            try:
                versions[_bytes(number)] = _bytes(target.register_schema(into, schema))
            except CatalogUnavailableError:
                raise
            except CatalogError as error:
                raise OptionError(
                    f"{into} does not take schema version {number} of {name}: {error}; registerSchema=false replays "
                    "the payloads without their schema"
                ) from error
        found[name] = versions
    return found


def with_versions(batch: pa.RecordBatch, versions: Mapping[bytes, bytes]) -> pa.RecordBatch:
    """Return the rows with the target's schema versions in place of the source's; null for an unknown version."""
    at = batch.schema.get_field_index(COLUMN)
    found = batch.column(at).dictionary_encode()
    known = pa.array([versions.get(each) for each in found.dictionary.to_pylist()], pa.binary())
    return batch.set_column(at, batch.schema.field(at), known.take(found.indices))


def _bytes(version: int) -> bytes:
    return version.to_bytes(8, "big")
