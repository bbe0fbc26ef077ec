"""The data source `pulsar`: Spark gets schema, reader and writer from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from magnetar.pipeline.columns import ddl
from magnetar.pipeline.needed_packages import check_pyspark
from magnetar.pipeline.options import SourceOptions
from magnetar.pipeline.source.row_source import RowSource
from magnetar.pipeline.source.values import choose_values

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType


class PulsarDataSource(DataSource):
    """Topics of Apache Pulsar or Magnetar. Runs on the driver in a Spark process, one instance per request."""

    def __init__(self, options: dict[str, str]) -> None:
        """Raises: MissingError with a PySpark that is too old, which finds `pyspark_magnetar` without `register`."""
        check_pyspark()
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "pulsar"

    def schema(self) -> str:
        """The columns of the selected topics. Raises OptionError, CatalogError."""
        return ddl(self._rows(SourceOptions.parse(self.options)).selected())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of `spark.read`. Raises OptionError, also for a `schema` that the topics do not have."""
        from magnetar.pipeline.source.batch_reader import PulsarReader  # noqa: PLC0415

        options = SourceOptions.parse(self.options)
        return PulsarReader(options, self._rows(options).fitted(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of `spark.readStream`. Raises as `reader`."""
        from magnetar.pipeline.source.stream_reader import PulsarStreamReader  # noqa: PLC0415

        options = SourceOptions.parse(self.options, streaming=True)
        return PulsarStreamReader(options, self._rows(options).fitted(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of `df.write`."""
        from magnetar.pipeline.sink.writers import make_writer  # noqa: PLC0415

        return make_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 - Spark's name
        """Return the writer of `df.writeStream`."""
        from magnetar.pipeline.sink.writers import make_stream_writer  # noqa: PLC0415

        return make_stream_writer(self.options, schema, overwrite)

    @staticmethod
    def _rows(options: SourceOptions) -> RowSource:
        return RowSource.of(options, choose_values(options))
