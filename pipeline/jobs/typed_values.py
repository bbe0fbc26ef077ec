"""The schema that the selected topics share, with all its versions, for the decoding of payloads in tasks. Pickles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.parse import quote

from magnetar.pipeline.errors import CatalogError, CatalogUnavailableError
from magnetar.pipeline.option_table import OptionError
from magnetar.pipeline.values.decoders import value_decoder
from magnetar.pipeline.values.topic_schema import TopicSchema
from magnetar.protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from magnetar.client.admin import AdminApi
    from magnetar.pipeline.options import SourceOptions
    from magnetar.pipeline.values.interface import ValueDecoder

_BUSY = frozenset({429, 502, 503})


@dataclass(frozen=True, slots=True)
class TypedValues:
    """schema: the newest, None for payloads as bytes.   versions: topic without partition -> version -> schema."""

    schema: TopicSchema | None = None
    versions: Mapping[str, Mapping[int, TopicSchema]] = field(default_factory=dict)

    def decoder(self, topic: str = "") -> ValueDecoder:
        """A decoder for one thread. Raises: SchemaError for a schema that has no form as columns."""
        known = self.versions.get(str(TopicName.parse(topic).base), {}) if topic else {}
        return value_decoder(self.schema, known.get)


def choose_values(options: SourceOptions, topics: Iterable[str]) -> TypedValues:
    """The schema of these topics, unless valueMode is bytes.

    Raises: OptionError when their schemas differ, unless allowDifferentTopicSchemas (then values are bytes);
            CatalogError.
    """
    if options.value_mode == "bytes":
        return TypedValues()
    admin = options.connect.admin()
    names = sorted({str(TopicName.parse(topic).base) for topic in topics})
    versions = {name: _versions(admin, name) for name in names}
    newest = {name: found[max(found)] if found else None for name, found in versions.items()}
    distinct = list({repr(schema): schema for schema in newest.values()}.values())
    if len(distinct) > 1:
        if options.allow_different_schemas:
            return TypedValues()
        raise OptionError(
            f"{len(distinct)} different schemas among {', '.join(names[:5])}: give each a table of its own, or read "
            "them as bytes with -o valueMode=bytes"
        )
    return TypedValues(distinct[0] if distinct else None, versions)


def _versions(admin: AdminApi, topic: str) -> dict[int, TopicSchema]:
    """Every version of a topic's schema; none without a schema."""
    name = TopicName.parse(topic)
    path = f"/admin/v2/schemas/{name.namespace}/{quote(name.local_name, safe='')}/schemas"
    try:
        answer: Any = admin.call("GET", path)
    except HTTPError as error:
        if error.code == 404:
            return {}
        kind = CatalogUnavailableError if error.code in _BUSY else CatalogError
        raise kind(f"{admin.url} answers {error.code} for the schemas of {topic}") from error
    except ValueError as error:
        raise CatalogError(f"{admin.url} answers without JSON for the schemas of {topic}: {error}") from error
    except OSError as error:
        raise CatalogUnavailableError(f"{admin.url} does not answer for the schemas of {topic}: {error}") from error
    found = (answer or {}).get("getSchemaResponses", [])
    alive = (each for each in found if each.get("type", "NONE") not in ("NONE", "DELETE"))
    return {int(each["version"]): TopicSchema.from_admin(each) for each in alive}
