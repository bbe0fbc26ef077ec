"""Loads the chain of converters that the settings describe.

The broker and every worker process load the converters that come with the broker. Only worker processes load foreign
converters (dotted paths): a worker loads and describes them, and the broker's chain has a stand-in for each, which
accepts all entries of the converter's formats. The worker calls the foreign converter itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker.foreign_entries.config import ConvertingSettingsError
from magnetar.broker.foreign_entries.frames import Described, Hello, Welcome
from magnetar.converters.chain import ConverterChain, LoadedConverter
from magnetar.converters.errors import ConverterSettingsError
from magnetar.converters.registry import SHORT_NAMES, load_chain

if TYPE_CHECKING:
    from magnetar.broker.foreign_entries.config import ConvertingConfig
    from magnetar.converters.interface import Conversion, ConverterSettings
    from magnetar.protocol.pulsar_api_pb2 import MessageMetadata

_BUILTIN = frozenset(SHORT_NAMES) | frozenset(SHORT_NAMES.values())


def is_builtin(spec: str) -> bool:
    """Whether the item of `messageConverters` names a converter that comes with the broker."""
    return spec.strip() in _BUILTIN


class ForeignConverter:
    """The stand-in, in the broker's chain, for a converter that only worker processes load."""

    def __init__(self, described: Described) -> None:
        self.name = described.name
        self.version = described.tag
        self.entry_formats = None if described.entry_formats is None else frozenset(described.entry_formats)

    def init(self, settings: ConverterSettings) -> None:
        """No effect: the worker process initializes the converter."""

    def close(self) -> None:
        """No effect: the worker process closes the converter."""

    def accepts(self, metadata: MessageMetadata, head: memoryview) -> bool:  # noqa: ARG002 - the worker asks
        return True

    def convert(self, metadata: MessageMetadata, payload: memoryview) -> Conversion:  # noqa: ARG002 - as above
        raise AssertionError("foreign code runs in worker processes only")


def is_foreign(chosen: LoadedConverter) -> bool:
    return isinstance(chosen.converter, ForeignConverter)


def hello(config: ConvertingConfig, path: list[str]) -> Hello:
    """The first message to a worker; `path` is its module search path."""
    return Hello(
        specs=list(config.specs),
        values=dict(config.values),
        optional=config.optional,
        memory_bytes=config.worker_memory_bytes,
        max_entry_bytes=config.limits.max_entry_bytes,
        max_ratio=config.limits.max_ratio,
        free_bytes=config.limits.free_bytes,
        path=path,
    )


def load(hello: Hello) -> tuple[ConverterChain, Welcome]:
    """Load the whole chain in a worker; return an empty chain and the refusal after a failure."""
    try:
        loaded = load_chain(hello.specs, hello.values, limits=hello.limits, optional=hello.optional)
    except ConverterSettingsError as error:
        return ConverterChain(), Welcome(refusal=str(error))
    return loaded.chain, Welcome(
        [describe(each) for each in loaded.chain.converters],
        list(loaded.problems),
    )


def describe(loaded: LoadedConverter) -> Described:
    converter = loaded.converter
    path = f"{type(converter).__module__}.{type(converter).__qualname__}"
    formats = converter.entry_formats
    return Described(loaded.name, loaded.tag, None if formats is None else sorted(formats), is_builtin(path))


def load_builtin(config: ConvertingConfig, welcome: Welcome | None) -> tuple[ConverterChain, tuple[str, ...]]:
    """Load the chain in the broker; return the chain and, as texts, the problems of omitted converters.

    welcome: the first answer of a worker; required for a chain with foreign converters.

    Converters in the broker work within `config.inline_limits`.
    Raises: ConvertingSettingsError.
    """
    specs = [spec for spec in config.specs if is_builtin(spec)]
    values = dict(config.values)
    if welcome is not None:
        if welcome.refusal is not None:
            raise ConvertingSettingsError(welcome.refusal)
        names = [each.name for each in welcome.converters if each.builtin]
        values = {key: value for key, value in values.items() if any(key.startswith(f"{name}.") for name in names)}
    try:
        loaded = load_chain(specs, values, limits=config.inline_limits, optional=config.optional)
    except ConverterSettingsError as error:
        raise ConvertingSettingsError(str(error)) from error
    if welcome is None:
        return loaded.chain, loaded.problems
    builtin = {each.name: each for each in loaded.chain.converters}
    converters = [
        builtin[each.name] if each.builtin else LoadedConverter(ForeignConverter(each), each.name, each.tag)
        for each in welcome.converters
    ]
    return ConverterChain(converters, config.inline_limits), tuple(welcome.problems)
