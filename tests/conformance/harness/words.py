"""Words of refusals on the wire: varying parts become neutral, and some scenarios leave the words out."""

import pathlib
import re
import tomllib

_LISTS = tomllib.loads((pathlib.Path(__file__).resolve().parent.parent / "words.toml").read_text())
LEFT_OUT = {name for names in _LISTS.values() for name in names}
"""Scenarios whose words differ from those of Apache Pulsar, by a reason in words.toml."""
_OF_FRAMES = ("message", "error_message")
_VARYING = (
    (re.compile(r"not served by this instance:\S+?\. "), "not served by this instance:BROKER. "),
    (re.compile(r"\[id: 0x[0-9a-f]+, L:\S+ [-!] R:\S+\]( \[SR:[^]]*\])?"), "CONNECTION"),
    (re.compile(r"\bstandalone-\d+-\d+\b"), "GENERATED"),
    (re.compile(r"UnresolvedSchema_\d+"), "UnresolvedSchema_N"),
    (re.compile(r"\n/[^\n]*? Give a new or removed field a default .*?TENANT/NAMESPACE`"), ""),  # Magnetar's remedy
    (re.compile(r"(Range conflict with consumer ).*"), r"\1CONSUMER"),
    (
        re.compile(
            r"(Invalid schema definition data for [A-Z_]+ schema|deserialize ProtobufNative Schema failed).*", re.DOTALL
        ),
        r"\1",
    ),
)
_WORDS = re.compile(r', "words": "(?:[^"\\]|\\.)*"')


def set_words(fields):
    """Move the text of a refusal, if a received command has one, to the key `words`."""
    for key in _OF_FRAMES:
        if isinstance(fields.get(key), str):
            text = fields.pop(key)
            for pattern, neutral in _VARYING:
                text = pattern.sub(neutral, text)
            fields["words"] = text


def without_words(lines):
    return [_WORDS.sub("", line) for line in lines]
