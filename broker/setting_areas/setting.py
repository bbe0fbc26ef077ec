"""How one setting is declared: a dataclass field that carries its row of the settings table."""

import dataclasses
from typing import Any, Final, TypeVar, cast, dataclass_transform

T = TypeVar("T")
Value = bool | int | float | str | tuple[str, ...] | None

_METADATA_KEY: Final = "setting"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the settings table.

    key      the name in files, environment and command line; Apache Pulsar's own wherever Pulsar has such a setting
    kind     the Python type: bool, int, float, str, tuple (comma-separated text), int | None (empty = off)
    unit     of numbers: "ms", "s", "min", "bytes", "MiB", "entries", ...
    minimum, maximum   allowed range of numbers, both ends included
    choices  allowed texts (of every part, for comma-separated texts)
    source   the origin of key and default
    secret   the value is never printed (configuration listings, error messages)
    """

    key: str
    attribute: str
    area: str
    kind: object
    default: Value
    doc: str
    unit: str = ""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    source: str = "Apache Pulsar broker.conf"
    secret: bool = False

    @property
    def default_text(self) -> str:
        """The default as it is written in a file."""
        return as_text(self.default)

    @property
    def allowed(self) -> str:
        """The allowed values in words, for error messages and documentation."""
        if self.choices:
            return "one of " + ", ".join(self.choices) if self.kind is str else "a list of " + ", ".join(self.choices)
        if self.kind is bool:
            return "true or false"
        if self.kind in (int, float, int | None):
            bounds = _bounds(self.minimum, self.maximum)
            noun = "a number" if self.kind is float else "an integer"
            return noun + bounds + (", or empty" if self.kind == int | None else "")
        return "a comma-separated list" if self.kind == tuple[str, ...] else "text"


def _bounds(minimum: float | None, maximum: float | None) -> str:
    if minimum is not None and maximum is not None:
        return f" from {minimum:g} to {maximum:.15g}"
    if minimum is not None:
        return f" of at least {minimum:g}"
    return f" of at most {maximum:g}" if maximum is not None else ""


def as_text(value: Value) -> str:
    """A value as it is written in a configuration file."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def setting(
    key: str,
    default: T,
    doc: str,
    *,
    unit: str = "",
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    source: str = "Apache Pulsar broker.conf",
    secret: bool = False,
) -> T:
    """Declare a setting as a dataclass field; the annotation of the field gives its type."""
    row = {
        "key": key,
        "doc": doc,
        "unit": unit,
        "minimum": minimum,
        "maximum": maximum,
        "choices": choices,
        "source": source,
        "secret": secret,
    }
    declared: T = dataclasses.field(default=default, metadata={_METADATA_KEY: row})
    return declared


class Table:
    """The base of classes of settings: built from keywords, equal by value, unchangeable but for `change`.

    The classes are dataclasses with the methods of this base: generating the methods for a hundred fields, again for
    each class in the line of bases, takes a twentieth of the broker's start-up.
    """

    def __init__(self, **values: object) -> None:
        fields: dict[str, dataclasses.Field[object]] = type(self).__dataclass_fields__  # type: ignore[attr-defined]
        if not values.keys() <= fields.keys():
            raise TypeError(f"no such setting: {', '.join(sorted(values.keys() - fields.keys()))}")
        self.__dict__.update({name: field.default for name, field in fields.items()} | values)

    def change(self, attribute: str, value: Value) -> None:
        """Change a setting for every holder of this object; for `dynamic_settings` alone, which notifies listeners."""
        if attribute not in self.__dict__:
            raise AttributeError(f"no such setting: {attribute}")
        self.__dict__[attribute] = value

    def __setattr__(self, name: str, value: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to setting {name!r}")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete setting {name!r}")

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(self) is type(other) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__.values()))


@dataclass_transform(kw_only_default=True, frozen_default=True)
def table(cls: type[T]) -> type[T]:
    """Declare a class of settings, with the settings of its bases and its own."""
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=True)(cls)
    return cast("type[T]", made)


def rows_of(settings_class: type, area: str) -> dict[str, Setting]:
    """The table rows that a class of settings declares itself, by key, in order of declaration."""
    rows: dict[str, Setting] = {}
    own = settings_class.__annotations__
    for declared in dataclasses.fields(settings_class):
        if declared.name not in own:
            continue
        row = declared.metadata[_METADATA_KEY]
        rows[row["key"]] = Setting(
            attribute=declared.name,
            area=area,
            kind=declared.type,
            default=cast("Value", declared.default),
            **row,
        )
    return rows
