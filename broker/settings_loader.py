"""Reads settings: command line > environment (PULSAR_PREFIX_<key>) > file > default.

Wrong values are errors, all of them reported together, each with key, value and what is allowed. Unknown keys are
warnings with the nearest known name: a file written for Apache Pulsar works here, and a misspelt key does not stay
unnoticed.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from magnetar.broker.advertised import AdvertisedAddresses
from magnetar.broker.settings import SETTINGS, Setting, Settings, Value

ENVIRONMENT_PREFIX: Final = "PULSAR_PREFIX_"
_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})


class SettingsError(Exception):
    """One or more settings cannot be used; `problems` has a sentence for each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Given:
    """A value as it was written, and where: "file conf/standalone.conf, line 7", "environment", "command line"."""

    key: str
    text: str
    where: str


def load_settings(
    file: Path | None,
    environment: Mapping[str, str],
    overrides: Iterable[str],
    warn: Callable[[str], None],
) -> Settings:
    """The settings that apply.

    Args:   file: key=value lines, or None; overrides: "key=value" texts of the command line;
            warn: gets a sentence for each unknown key, and one for all that have no effect here.
    Raises: SettingsError with every problem found; OSError if the file cannot be read.
    """
    given = [] if file is None else read_file(file)
    given += _from_environment(environment)
    problems: list[str] = []
    given += _from_command_line(overrides, problems)
    values: dict[str, Value] = {}
    foreign: list[Given] = []
    for key, item in {item.key: item for item in given}.items():
        row = SETTINGS.get(key)
        if row is None:
            foreign.append(item)
            continue
        try:
            values[row.attribute] = parse_value(row, item.text)
        except ValueError as e:
            shown = "(hidden)" if row.secret else repr(item.text)
            problems.append(f"{item.where}: {key} cannot be {shown}: {e}")
    _warn_of(foreign, warn)
    if not problems:
        # Every value was checked against the row of its attribute, which the type checker cannot see.
        settings = Settings(**values)  # type: ignore[arg-type]
        problems = contradictions(settings)
        if not problems:
            return settings
    raise SettingsError(problems)


def read_file(file: Path) -> list[Given]:
    """The key=value lines of a file; empty lines and lines that begin with # are left out."""
    given = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        text = line.strip()
        if not text or text[0] in "#!":
            continue
        key, equals, value = text.partition("=")
        where = f"file {file}, line {number}"
        if not equals:
            raise SettingsError([f"{where}: expected key=value, found {text!r}"])
        given.append(Given(key.strip(), value.strip(), where))
    return given


def _from_environment(environment: Mapping[str, str]) -> list[Given]:
    return [
        Given(name.removeprefix(ENVIRONMENT_PREFIX), value.strip(), f"environment variable {name}")
        for name, value in sorted(environment.items())
        if name.startswith(ENVIRONMENT_PREFIX)
    ]


def _from_command_line(overrides: Iterable[str], problems: list[str]) -> list[Given]:
    given = []
    for text in overrides:
        key, equals, value = text.partition("=")
        if equals:
            given.append(Given(key.strip(), value.strip(), "command line"))
        else:
            problems.append(f"command line: expected key=value, found {text!r}")
    return given


def parse_value(row: Setting, text: str) -> Value:
    """The value of a setting from its text.

    Raises: ValueError that says what is allowed.
    """
    value = _parse(row, text)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        below = row.minimum is not None and value < row.minimum
        above = row.maximum is not None and value > row.maximum
        if below or above:
            raise ValueError(f"must be {row.allowed}")
    if row.choices and not set(value if isinstance(value, tuple) else (value,)) <= set(row.choices):
        raise ValueError(f"must be {row.allowed}")
    return value


def _parse(row: Setting, text: str) -> Value:
    if row.kind is str:
        return text
    if row.kind is bool:
        if text.lower() not in _TRUE | _FALSE:
            raise ValueError(f"must be {row.allowed}")
        return text.lower() in _TRUE
    if row.kind == tuple[str, ...]:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if not text and row.kind == int | None:
        return None
    try:
        return float(text) if row.kind is float else int(text)
    except ValueError:
        raise ValueError(f"must be {row.allowed}") from None


def _warn_of(foreign: list[Given], warn: Callable[[str], None]) -> None:
    """What to say about keys that are not in the table: a sentence for each that nobody knows, one for all that mean
    something to Apache Pulsar only, for its files have a hundred of them.
    """
    if not foreign:
        return
    import difflib  # noqa: PLC0415 - needed by few starts

    from magnetar.broker.setting_areas.ignored import is_ignored  # noqa: PLC0415 - a long list, needed by few starts

    for item in foreign:
        if not is_ignored(item.key):
            near = difflib.get_close_matches(item.key, SETTINGS, n=1, cutoff=0.6)
            meant = f"; did you mean {near[0]}?" if near else ""
            warn(f"{item.where}: unknown setting {item.key} is ignored{meant}")
    ignored = [item.key for item in foreign if is_ignored(item.key)]
    if ignored:
        warn(f"of no effect here and ignored: {', '.join(ignored)}")


def contradictions(settings: Settings) -> list[str]:
    """Settings that are fine alone and cannot be used together."""
    problems = []
    if settings.broker_service_port_tls is not None or settings.web_service_port_tls is not None:
        for key, path in (
            ("tlsCertificateFilePath", settings.tls_certificate_file_path),
            ("tlsKeyFilePath", settings.tls_key_file_path),
        ):
            if not path:
                problems.append(f"{key} is needed by brokerServicePortTls and webServicePortTls")
    if settings.authorization_enabled and not settings.authentication_enabled:
        problems.append("authorizationEnabled=true needs authenticationEnabled=true")
    if settings.authentication_enabled and not settings.authentication_providers:
        problems.append("authenticationEnabled=true needs authenticationProviders")
    if settings.broker_service_port is None and settings.broker_service_port_tls is None:
        problems.append("brokerServicePort and brokerServicePortTls are both empty: nothing to listen on")
    if (settings.default_retention_time_in_minutes == 0) != (settings.default_retention_size_in_mb == 0):
        problems.append(
            "defaultRetentionTimeInMinutes and defaultRetentionSizeInMB must both be 0 or both be set (-1 is unlimited)"
        )
    try:
        AdvertisedAddresses(settings)
    except ValueError as e:
        problems.append(str(e))
    return problems
