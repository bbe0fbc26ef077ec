"""A broker without converters is named, others are not."""

import io

import pytest

from magnetar.importing.conversion import warn_unless_converted
from magnetar.importing.progress import Progress
from tests.importing.test_protection import api

SETTINGS = "/admin/v2/brokers/configuration/runtime"


@pytest.mark.parametrize(
    ("answer", "warns"),
    [
        ({"messageConverters": "[]"}, True),
        ({"messageConverters": "[kafka]"}, False),
        ({"brokerServicePort": "6650"}, False),
        (None, False),
        (OSError("HTTP 403"), False),
        (ValueError("no JSON"), False),
    ],
)
def test_a_broker_without_converters_has_a_warning(answer, warns):
    said = io.StringIO()
    warn_unless_converted(api(**{SETTINGS: answer}), Progress(said))
    assert ("messageConverters=kafka" in said.getvalue()) is warns
