"""The blocks of docs/pipeline/tables.md read the tables of the exports, with each library of the page that is
installed.
"""

import datetime as dt
import io
import pathlib
import re

import pyarrow as pa
import pytest

import magnetar.pipeline
from magnetar.pipeline.jobs.maintenance import join_small_files
from magnetar.pipeline.jobs.runner import LocalRunner
from magnetar.pipeline.lake.committer import open_table
from magnetar.pipeline.lake.errors import NotATableError
from magnetar.pipeline.progress import Progress
from tests.pipeline.lake.lake_rows import SCHEMA, append, rows, write

PAGE = (pathlib.Path(__file__).parents[3] / "docs/pipeline/tables.md").read_text()
LIBRARIES = ("duckdb", "polars")
"""Libraries that the page needs and no part of this project."""
NARROW = SCHEMA.append(pa.field("amount", pa.int32()))
WIDE = SCHEMA.append(pa.field("amount", pa.int64())).append(pa.field("currency", pa.string()))
FIRST, SECOND = dt.date(2026, 11, 21), dt.date(2026, 11, 22)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


def blocks(heading):
    """The blocks of code between a heading and the next heading of any level."""
    section = re.split(rf"^#+ {heading}$", PAGE, maxsplit=1, flags=re.MULTILINE)[1]
    return re.findall(
        r"^```python\n(.*?)^```", re.split(r"^#+ ", section, flags=re.MULTILINE)[0], re.DOTALL | re.MULTILINE
    )


def run(heading, lake, *, without=(), **names):
    """Run the blocks of a section one after the other; returns their names."""
    for block in blocks(heading):
        if not any(each in block for each in without):
            exec(compile(block.replace("/lake/", f"{lake}/"), heading, "exec"), names)
    return names


def export(table_format, lake, *, evolving=True):
    """A table of six rows on two days, whose columns grow between its two commits."""
    uri = str(lake / table_format / "orders")
    append(open_table(table_format, uri), 0, 3, schema=NARROW, amount=[1, 2, 3])
    second = WIDE if evolving and table_format != "delta" else NARROW
    more = {"currency": ["EUR"] * 3} if second is WIDE else {}
    append(open_table(table_format, uri), 3, 6, day=1, schema=second, amount=[4, 5, 6], **more)
    return uri


def test_pyarrow_and_pandas_get_each_row_and_column_once(tmp_path):
    table = open_table("parquet", export("parquet", tmp_path))
    write(table, table.prepare(WIDE), rows(6, 9), prefix="killed")
    found = run("Parquet", tmp_path, without=("duckdb", "polars", "spark"))
    whole = found["orders"].to_table().sort_by("__index")
    assert whole["__index"].to_pylist() == list(range(6))
    assert whole["amount"].to_pylist() == [1, 2, 3, 4, 5, 6]
    assert whole.schema.field("amount").type == pa.int64()
    assert whole["currency"].to_pylist() == [None] * 3 + ["EUR"] * 3
    assert whole["publish_date"].to_pylist() == [FIRST] * 3 + [SECOND] * 3
    assert (found["in_arrow"].num_rows, found["in_pandas"].shape) == (6, (6, len(whole.column_names)))
    assert set(found["in_pandas"].publish_date) == {FIRST, SECOND}


def test_a_dataset_after_small_files_were_joined(tmp_path):
    uri = str(tmp_path / "orders")
    for start in range(0, 30, 10):
        append(open_table("parquet", uri), start, start + 10)
    assert (
        join_small_files(open_table("parquet", uri), LocalRunner(), Progress("join", io.StringIO(), style="none"))[
            "groups"
        ]
        == 1
    )
    found = magnetar.pipeline.dataset(uri)
    assert len(found.files) == 1
    assert found.to_table().num_rows == 30


def test_a_condition_on_the_date_reads_only_its_files(tmp_path):
    uri = export("parquet", tmp_path)
    found = magnetar.pipeline.dataset(uri)
    [file] = list(found.get_fragments(filter=pa.compute.field("publish_date") == SECOND))
    assert f"publish_date={SECOND}" in file.path


def test_rows_without_a_date_and_tables_without_rows(tmp_path):
    uri = str(tmp_path / "orders")
    columns = {"__publishTime": [None] * 2, "__brokerPublishTime": [None] * 2}
    append(open_table("parquet", uri), 0, 2, **columns)
    assert magnetar.pipeline.dataset(uri).to_table()["publish_date"].to_pylist() == [None] * 2
    with pytest.raises(NotATableError, match="no table"):
        magnetar.pipeline.dataset(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("library", LIBRARIES)
def test_duckdb_and_polars_get_each_row_and_column_once(tmp_path, library):
    pytest.importorskip(library)
    export("parquet", tmp_path)
    found = run("Parquet", tmp_path, without=({*LIBRARIES, "spark"} - {library}))
    if library == "duckdb":
        assert found["in_duckdb"] == [(FIRST, 3), (SECOND, 3)]
    else:
        assert found["in_polars"].shape == (6, len(WIDE.names) + 1)
        assert sorted(found["in_polars"]["amount"]) == [1, 2, 3, 4, 5, 6]


def test_the_folder_alone(tmp_path):
    for each in LIBRARIES:
        pytest.importorskip(each)
    export("parquet", tmp_path, evolving=False)
    found = run("Without Magnetar", tmp_path)
    assert found["by_pandas"].shape == found["by_polars"].shape == (6, len(NARROW.names) + 1)
    assert (len(found["by_duckdb"]), len(found["by_duckdb"][0])) == (6, len(NARROW.names) + 1)


@pytest.mark.parametrize("table_format", ["Delta", "Iceberg"])
def test_other_formats(tmp_path, table_format):
    for each in LIBRARIES:
        pytest.importorskip(each)
    export(table_format.lower(), tmp_path)
    found = run(table_format, tmp_path)
    assert len(found["in_polars"]) == 6
    assert len(found["in_pandas"]) == (6 if table_format == "Delta" else 4)
    assert found["in_duckdb"] == ([(FIRST, 3), (SECOND, 3)] if table_format == "Delta" else [(6,)])


def test_a_table_of_format_1_keeps_its_folders(tmp_path):
    uri = str(tmp_path / "orders")
    append(open_table("parquet", uri), 0, 3)
    manifest = tmp_path / "orders/_magnetar/00000000000000000000.json"
    manifest.write_text(manifest.read_text().replace('"format": 2', '"format": 1').replace("publish_date=", "__date="))
    (tmp_path / "orders" / f"publish_date={FIRST}").rename(tmp_path / "orders" / f"__date={FIRST}")
    [file] = append(open_table("parquet", uri), 3, 6, day=1)
    assert file.path.startswith(f"__date={SECOND}/")
    found = magnetar.pipeline.dataset(uri).to_table().sort_by("__index")
    assert found["__date"].to_pylist() == [FIRST] * 3 + [SECOND] * 3
    assert open_table("parquet", uri).vacuum(0) == []


def test_a_field_with_the_name_of_the_date_is_refused(tmp_path):
    table = open_table("parquet", str(tmp_path / "orders"))
    with pytest.raises(NotATableError, match="a field publish_date"):
        table.prepare(SCHEMA.append(pa.field("Publish_Date", pa.string())))
