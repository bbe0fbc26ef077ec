"""Builds a chain from the setting `messageConverters`, or refuses the setting at start (guarantee G16).

An item is a short name (`kafka`, `bytes`, `echo`, `reject-all`) or the dotted path of a class (`package.module.Class`).
A class is called without arguments and must fit `interface.MessageConverter`. Settings of a converter are `<its
name>.<key>`.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from magnetar.converters.chain import ConverterChain, LoadedConverter, loaded
from magnetar.converters.errors import ConverterSettingsError
from magnetar.converters.interface import DEFAULT_LIMITS, ConverterSettings, ExpansionLimits, MessageConverter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SHORT_NAMES: Mapping[str, str] = {
    "kafka": "magnetar.converters.kafka_entry.converter.KafkaConverter",
    "bytes": "magnetar.converters.examples.BytesConverter",
    "echo": "magnetar.converters.examples.EchoConverter",
    "reject-all": "magnetar.converters.examples.RejectAllConverter",
}

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_METHODS: Mapping[str, int] = {"init": 1, "close": 0, "accepts": 2, "convert": 2}
"""Methods and how many arguments each is called with."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """A chain, and the optional converters that were left out."""

    chain: ConverterChain
    problems: tuple[str, ...] = ()


def load_chain(
    specs: Sequence[str],
    settings: Mapping[str, str] | None = None,
    *,
    limits: ExpansionLimits = DEFAULT_LIMITS,
    optional: bool = False,
) -> LoadResult:
    """Build, check and initialize the chain in the configured order.

    Args:    specs: items of `messageConverters`.   settings: `<name>.<key>` to value, for all converters together.
             optional: `messageConvertersOptional`: leave unloadable converters out instead of refusing to start.
    Raises:  ConverterSettingsError; converters already initialized are closed again first.
    """
    settings = settings or {}
    ready: list[LoadedConverter] = []
    problems: list[str] = []
    for spec in specs:
        try:
            ready.append(_load(spec.strip(), settings, limits, [each.name for each in ready]))
        except ConverterSettingsError as error:
            if not optional:
                ConverterChain(ready).close()
                raise
            problems.append(str(error))
    unused = sorted(key for key in settings if not any(key.startswith(f"{each.name}.") for each in ready))
    if unused and not optional:
        ConverterChain(ready).close()
        raise ConverterSettingsError(f"converter settings {unused} belong to no configured converter")
    problems += [f"converter setting {key!r} belongs to no loaded converter" for key in unused]
    return LoadResult(ConverterChain(ready, limits), tuple(problems))


def _load(spec: str, settings: Mapping[str, str], limits: ExpansionLimits, taken: list[str]) -> LoadedConverter:
    converter = _create(spec)
    _check(spec, converter)
    if converter.name in taken:
        raise ConverterSettingsError(f"messageConverters: {spec!r} is the second converter named {converter.name!r}")
    prefix = f"{converter.name}."
    own = {key.removeprefix(prefix): value for key, value in settings.items() if key.startswith(prefix)}
    try:
        converter.init(ConverterSettings(own, limits))
    except ConverterSettingsError as error:
        raise ConverterSettingsError(f"messageConverters: {spec!r}: {error}") from error
    except Exception as error:  # a converter may be foreign code
        raise _refusal(spec, f"init failed with {type(error).__name__}: {error}") from error
    return loaded(converter, own.items())


def _create(spec: str) -> MessageConverter:
    path = SHORT_NAMES.get(spec, spec)
    module_name, _, class_name = path.rpartition(".")
    if not module_name or not path.replace(".", "").isidentifier():
        known = ", ".join(SHORT_NAMES)
        raise _refusal(spec, f"neither a short name ({known}) nor a dotted path package.module.Class")
    try:
        factory = getattr(import_module(module_name), class_name)
    except ImportError as error:
        raise _refusal(spec, f"module {module_name!r} cannot be imported: {error}") from error
    except AttributeError as error:
        raise _refusal(spec, f"module {module_name!r} has no {class_name!r}") from error
    except Exception as error:  # importing runs foreign code
        raise _refusal(spec, f"importing it failed with {type(error).__name__}: {error}") from error
    if not inspect.isclass(factory):
        raise _refusal(spec, "is no class")
    created: Any
    try:
        created = factory()
    except Exception as error:  # a converter may be foreign code
        raise _refusal(spec, f"cannot be created without arguments: {error}") from error
    return cast("MessageConverter", created)


def _check(spec: str, converter: Any) -> None:
    """Raises: ConverterSettingsError with the first attribute that does not fit the interface."""
    for method, arguments in _METHODS.items():
        function = getattr(converter, method, None)
        if not callable(function):
            raise _refusal(spec, f"has no method {method}()")
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise _refusal(spec, f"{method}() must not be async: converters are pure")
        try:
            inspect.signature(function).bind(*range(arguments))
        except TypeError as error:
            raise _refusal(spec, f"{method}() must take {arguments} arguments: {error}") from error
        except ValueError:  # no signature, as for some compiled functions: the first call will show an error
            continue
    if not isinstance(name := getattr(converter, "name", None), str) or not _NAME.fullmatch(name):
        raise _refusal(spec, f"name must match {_NAME.pattern}, is {name!r}")
    if not isinstance(version := getattr(converter, "version", None), str) or not version:
        raise _refusal(spec, f"version must be a non-empty string, is {version!r}")
    formats = getattr(converter, "entry_formats", ...)
    if formats is not None and not (
        isinstance(formats, frozenset) and all(isinstance(f, str) and f == f.lower() for f in formats)
    ):
        raise _refusal(spec, f"entry_formats must be None or a frozenset of lower-case strings, is {formats!r}")


def _refusal(spec: str, reason: str) -> ConverterSettingsError:
    return ConverterSettingsError(f"messageConverters: {spec!r} {reason}")
