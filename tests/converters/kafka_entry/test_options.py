import pytest

from magnetar.converters.errors import ConverterSettingsError
from magnetar.converters.kafka_entry.options import Compression, KafkaOptions, KeyText, Mode


def test_defaults_are_faithful():
    assert KafkaOptions.parse({}) == KafkaOptions(
        Mode.FAITHFUL, KeyText.BASE64, Compression.AUTO, offset_property=False
    )


def test_every_setting():
    parsed = KafkaOptions.parse({"mode": " KOP ", "key": "utf8", "compression": "none", "offset": "True"})
    assert parsed == KafkaOptions(Mode.KOP, KeyText.UTF8, Compression.NONE, offset_property=True)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"mode": "best"}, r"kafka\.mode must be one of faithful, kop, not 'best'"),
        ({"key": "hex"}, r"kafka\.key must be one of base64, utf8"),
        ({"compression": "zip"}, r"kafka\.compression must be one of auto, none"),
        ({"offset": "1"}, r"kafka\.offset must be true or false"),
        ({"offsets": "true"}, r"unknown kafka settings \['offsets'\]"),
    ],
)
def test_refusals(values, why):
    with pytest.raises(ConverterSettingsError, match=why):
        KafkaOptions.parse(values)
