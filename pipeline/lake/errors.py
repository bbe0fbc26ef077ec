"""The errors of a table.

PipelineError
└── LakeError
    ├── CommitConflictError   the table does not end where the commit begins: plan again from `committed()`
    ├── SchemaDriftError      a column has a type that the table's column cannot take
    ├── SinkFullError         no room for a data file or a manifest; nothing of it has been committed
    └── NotATableError        the place is no table of this pipeline, or the library cannot take its path
"""

from __future__ import annotations

from magnetar.pipeline.errors import PipelineError


class LakeError(PipelineError):
    """Root of the errors of tables."""


class CommitConflictError(LakeError):
    """Another commit came first, or the range does not continue the table. No change was committed."""


class SchemaDriftError(LakeError):
    """A column of the topic and the table's column of the same name have types that do not go together.

    Attributes: column, table_type, topic_type.
    """

    def __init__(self, column: str, table_type: object, topic_type: object) -> None:
        super().__init__(
            f"column {column!r} is {table_type} in the table and {topic_type} in the topic's schema: "
            "export to a new table, or leave the column out with --columns"
        )
        self.column = column
        self.table_type = table_type
        self.topic_type = topic_type


class SinkFullError(LakeError):
    """The file system of the table is full (or over its quota): make room and run the same command again."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}. Nothing of it is committed; make room and run the same command again")
        self.path = path


class NotATableError(LakeError):
    """The place is no table of this format, or the table was not made by this pipeline."""
