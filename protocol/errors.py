"""Errors in bytes and names that peers send.

ProtocolError
├── InvalidTopicNameError     no topic or namespace name
├── MalformedEntryError       headers and payload that contradict each other
├── MalformedAnswerError      bytes from a broker that are no frames of the protocol
├── TooManyPartsError         a message whose lists have more parts than the broker reads in one turn
└── CompressionError          a payload that its codec does not decode, or not to the size it claims
"""

from __future__ import annotations


class ProtocolError(Exception):
    """Root of this room's errors."""


class InvalidTopicNameError(ProtocolError):
    """A text that is no topic name or no namespace name."""


class MalformedEntryError(ProtocolError):
    """Headers and payload that contradict each other."""


class MalformedAnswerError(ProtocolError):
    """A frame or command that no broker sends."""


class TooManyPartsError(ProtocolError):
    """A message whose lists have more parts than the broker reads in one turn of the event loop."""


class CompressionError(ProtocolError):
    """A payload that does not decompress, or not to the size it claims."""
