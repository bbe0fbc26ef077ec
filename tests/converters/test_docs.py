"""The examples of docs/features/converters.md run as they stand."""

import pathlib
import re

DOC = pathlib.Path(__file__).parents[2] / "docs" / "features" / "converters.md"


def test_every_example_runs():
    blocks = re.findall(r"^```python\n(.*?)^```", DOC.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 7
    namespace = {"__name__": "converters_doc"}
    for block in blocks:
        exec(compile(block, str(DOC), "exec"), namespace)


def test_it_ends_with_limitations():
    assert re.findall(r"^## (.*)$", DOC.read_text(), re.MULTILINE)[-1] == "Limitations"


def test_every_shipped_converter_and_setting_is_described():
    from magnetar.converters.registry import SHORT_NAMES

    text = DOC.read_text()
    for name in (*SHORT_NAMES, "kafka.mode", "kafka.key", "kafka.compression", "kafka.offset", "entry.format.raw"):
        assert f"`{name}" in text, name
