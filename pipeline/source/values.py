"""How the payloads of the selected topics are decoded: by their schema, or as bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.pipeline.catalog import Catalog
from magnetar.pipeline.option_table import OptionError
from magnetar.pipeline.values.interface import BytesValues
from magnetar.pipeline.values.topic_schema import TopicSchema
from magnetar.protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.pipeline.connect_options import ConnectOptions
    from magnetar.pipeline.options import SourceOptions
    from magnetar.pipeline.values.interface import ValueDecoder

_MOST_COMPARED = 200
"""The most topics whose schemas are compared when a query is planned."""


@dataclass(frozen=True)
class ValueChoice:
    """The choice from which executors make the decoder of values. schema: the reader's; None: payloads as bytes."""

    connect: ConnectOptions
    schema: TopicSchema | None

    def decoder(self, topic: str = "", is_current: Callable[[], bool] = lambda: True) -> ValueDecoder:
        """A decoder for one thread. Older versions of the schema are those of `topic`.

        Args:  is_current: whether the topic is still the topic that the plan was made for. Once the topic was made
               anew, the broker has the versions of another topic, and the versions of the planned topic are unknown.
        """
        if self.schema is None:
            return BytesValues()
        from magnetar.pipeline.values.decoders import value_decoder  # noqa: PLC0415 - Avro, JSON and Protobuf with it

        catalog = Catalog(self.connect.admin())

        def version(number: int) -> TopicSchema | None:
            answer = catalog.schema(topic, version=number) if topic else None
            return TopicSchema.from_admin(answer) if answer is not None and is_current() else None

        return value_decoder(self.schema, version)


def choose_values(options: SourceOptions) -> ValueChoice:
    """The schema that the selected topics share.

    Raises OptionError when their schemas differ, unless allowDifferentTopicSchemas is true: then values are bytes.
    """
    connect = options.connect
    if options.value_mode == "bytes" or options.column_style == "kafka":
        return ValueChoice(connect, None)
    catalog = Catalog(connect.admin())
    topics = catalog.partitions(options.selection, missing_ok=True)
    names = sorted({str(TopicName.parse(topic).base) for topic in topics})[:_MOST_COMPARED]
    schemas = [None if answer is None else TopicSchema.from_admin(answer) for answer in catalog.schemas(names)]
    for name, schema in zip(names, schemas, strict=True):
        if schema != schemas[0]:
            if options.allow_different_schemas:
                return ValueChoice(connect, None)
            raise OptionError(
                f"{names[0]} and {name} have different schemas: read them apart, or as bytes with valueMode=bytes or "
                "allowDifferentTopicSchemas=true"
            )
    return ValueChoice(connect, schemas[0] if schemas else None)
