"""Reads settings: command line > environment (PULSAR_PREFIX_<key>) > file > default.

Wrong values are errors, all of them reported together, each with key, value and allowed values. So are keys that
neither this broker nor Apache Pulsar knows, for a misspelt key would leave its default in force, and values of keys
that protect resources there and cannot do so here (`setting_areas/refused.py`). Keys of Apache Pulsar that Magnetar
ignores are listed in a single warning: its files work here.

With unknownSettings=list unknown keys are listed too, for files of other versions of Apache Pulsar; a key that
resembles a security setting is an error even then.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Final

from magnetar.broker.advertised import AdvertisedAddresses
from magnetar.broker.open_doors import is_readable_by_others
from magnetar.broker.setting_areas.older_names import OlderName, today
from magnetar.broker.settings import SETTINGS, Setting, Settings, Value
from magnetar.protocol.errors import InvalidTopicNameError
from magnetar.protocol.topic_name import check_entity

ENVIRONMENT_PREFIX: Final = "PULSAR_PREFIX_"
_COMMAND_LINE: Final = "command line"
_SECURITY_AREA: Final = "Security"
_DATA_DIR: Final = "dataDir"
_QUOTES: Final = "\"'"
_WORD: Final = re.compile(r"[\w.]+")
_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})


class SettingsError(Exception):
    """One or more settings cannot be used; `problems` has a sentence for each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Given:
    """A value's text and its origin: "file conf/standalone.conf, line 7", "environment", "command line"."""

    key: str
    text: str
    where: str


def load_settings(
    file: Path | None,
    environment: Mapping[str, str],
    overrides: Iterable[str],
    warn: Callable[[str], None],
    defaults: Mapping[str, str] | None = None,
    older_names: Sequence[OlderName] = (),
) -> Settings:
    """The settings that apply.

    Args:   file: key=value lines, or None; overrides: "key=value" texts of the command line;
            defaults: key -> text, where the defaults of a command differ from the table;
            older_names: keys of earlier versions that have an effect in this command;
            warn: is called with one sentence for all keys without effect here, and with a sentence for each secret that
            other users can see.
    Raises: SettingsError with every problem found, also of a file that cannot be read.
    """
    first = [Given(key, text, "default of the command") for key, text in (defaults or {}).items()]
    problems: list[str] = []
    given = [] if file is None else read_file(file, problems)
    if file is not None:
        _warn_of_readable(file, given, warn)
        _warn_of_repeats(given, warn)
    given += _from_environment(environment)
    _judge_unprefixed(environment, warn, problems)
    given += _from_command_line(overrides, problems)
    _warn_of_shown_secrets(given, warn)
    values: dict[str, Value] = {}
    foreign: list[Given] = []
    for key, item in _under_names_of_today({item.key: item for item in first + given}, older_names).items():
        row = SETTINGS.get(key)
        if row is None:
            foreign.append(item)
            continue
        if key == _DATA_DIR and not item.text:  # an unset variable of a shell, for example
            problems.append(f"{item.where}: the path in {key} is empty; leave the key out for {row.default}")
        if key == _DATA_DIR and item.text.partition("/")[0] == "~":
            text = f"{item.where}: {key} cannot be {item.text!r}: ~ has no meaning here, write the whole path"
            problems.append(text)
        try:
            values[row.attribute] = parse_value(row, item.text)
        except ValueError as e:
            shown = "(hidden)" if row.secret else repr(item.text)
            problems.append(f"{item.where}: {item.key} cannot be {shown}: {e}")
    mode = values.get("unknown_settings", SETTINGS["unknownSettings"].default)
    kept = {key for key, row in SETTINGS.items() if values.get(row.attribute) is not None}
    problems += _judge_foreign(foreign, kept, warn, lists_unknown=mode == "list")
    if not problems:
        # Every value was checked against the row of its attribute, which the type checker cannot see.
        settings = Settings(**values)  # type: ignore[arg-type]
        problems = contradictions(settings)
        if not problems:
            return settings
    raise SettingsError(problems)


def _under_names_of_today(given: dict[str, Given], older: Sequence[OlderName]) -> dict[str, Given]:
    """The values by the keys that they count for; older keys without an effect keep their own."""
    moved = today(older, {key: item.text for key, item in given.items()})
    before = {name.key: name.before for name in older}
    found = {key: item for key, item in given.items() if key not in moved and key not in moved.values()}
    for key, newer in moved.items():
        found[newer] = replace(given[key], text=before[key] + given[key].text.removeprefix(before[key]))
    return found


def read_file(file: Path, problems: list[str]) -> list[Given]:
    """The key=value lines of a file, without empty lines and lines that begin with # or !. A line of another form is
    a problem.

    Raises: SettingsError with the remedy for a file that cannot be read.
    """
    try:
        content = file.read_text(encoding="utf-8-sig")
    except PermissionError as e:
        text = f"cannot read {file}: {e.strerror}; user {os.geteuid()} must have the right to read it"
        raise SettingsError([text]) from e
    except OSError as e:
        raise SettingsError([f"cannot read {file}: {e.strerror}; name a file of key=value lines"]) from e
    except UnicodeDecodeError as e:
        text = f"cannot read {file}: byte {e.start} is no text in UTF-8; name a file of key=value lines"
        raise SettingsError([text]) from e
    given, continued = [], ""
    for number, line in enumerate(content.splitlines(), start=1):
        text = line.strip()
        if not text or text[0] in "#!":
            continue
        key, equals, value = text.partition("=")
        where = f"file {file}, line {number}"
        if equals:
            given.append(Given(key.strip(), value.strip(), where))
            continued = key.strip()
        else:
            continued = _secret_in(text, continued)
            shown = f"{continued} (hidden)" if continued else text
            problems.append(f"{where}: expected key=value, found {shown!r}")
        if not text.endswith("\\"):
            continued = ""
    return given


def _secret_in(line: str, continued: str) -> str:
    """Return the secret key whose value a line without `=` may have: behind the key in another form, or as the rest of
    the line before, whose key is `continued` and whose end is a backslash. Empty without such a key.
    """
    return next((key for key in (*_WORD.findall(line), continued) if key != line and _is_secret(key)), "")


def _from_environment(environment: Mapping[str, str]) -> list[Given]:
    return [
        Given(name.removeprefix(ENVIRONMENT_PREFIX), value.strip(), f"environment variable {name}")
        for name, value in sorted(environment.items())
        if name.startswith(ENVIRONMENT_PREFIX)
    ]


def _judge_unprefixed(environment: Mapping[str, str], warn: Callable[[str], None], problems: list[str]) -> None:
    """Variables that are named like settings, as images of Apache Pulsar take them: without the prefix they have no
    effect. A security setting among them is a problem, because its author relies on it.
    """
    for name in sorted(environment.keys() & SETTINGS.keys()):
        text = f"environment variable {name} has no effect; its name must be {ENVIRONMENT_PREFIX}{name}"
        if SETTINGS[name].area == _SECURITY_AREA and ENVIRONMENT_PREFIX + name not in environment:
            problems.append(text)
        else:
            warn(text)


def _warn_of_repeats(given: list[Given], warn: Callable[[str], None]) -> None:
    """Warn of a key with two values in a file: the last value counts, as in Apache Pulsar."""
    seen: dict[str, Given] = {}
    for item in given:
        before = seen.get(item.key)
        if before is not None and before.text != item.text:
            warn(f"{item.where}: {item.key} was given before ({before.where}) with another value; the last one counts")
        seen[item.key] = item


def _from_command_line(overrides: Iterable[str], problems: list[str]) -> list[Given]:
    given = []
    for text in overrides:
        key, equals, value = text.partition("=")
        if equals:
            given.append(Given(key.strip(), value.strip(), _COMMAND_LINE))
        else:
            problems.append(f"command line: expected key=value, found {text!r}")
    return given


def parse_value(row: Setting, text: str) -> Value:
    """The value of a setting from its text.

    Raises: ValueError that names the allowed values.
    """
    if row.key != _DATA_DIR and not _is_utf8(text):
        # A byte of the environment as half of a surrogate pair is the role of a token with that escape.
        raise ValueError("the value must be text in UTF-8")
    value = _parse(row, text)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        below = row.minimum is not None and value < row.minimum
        above = row.maximum is not None and value > row.maximum
        if below or above:
            raise ValueError(_must_be(row))
    if row.choices and not set(value if isinstance(value, tuple) else (value,)) <= set(row.choices):
        raise ValueError(f"must be {row.allowed}")
    return value


def _must_be(row: Setting) -> str:
    return f"must be {row.allowed}{f' (unit: {row.unit})' if row.unit else ''}"


def _parse(row: Setting, text: str) -> Value:
    parts = tuple(part.strip() for part in text.split(",") if part.strip()) if row.kind == tuple[str, ...] else ()
    if row.kind in (str, tuple[str, ...]) and any(map(_is_quoted, (text, *parts))):
        raise ValueError("the quotes are part of the value; leave them out")
    if row.kind is str:
        return text or row.default
    if row.kind is bool:
        if text.lower() not in _TRUE | _FALSE:
            raise ValueError(f"must be {row.allowed}")
        return text.lower() in _TRUE
    if row.kind == tuple[str, ...]:
        return parts
    if not text:  # as Apache Pulsar reads its files
        return None if row.kind == int | None else row.default
    try:
        value = float(text) if row.kind is float else int(text)
        is_finite = isfinite(value)
    except (ValueError, OverflowError):
        raise ValueError(_must_be(row)) from None
    if "_" in text or not is_finite:  # numbers of Python alone, and those that no comparison bounds
        raise ValueError(_must_be(row))
    return value


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_quoted(text: str) -> bool:
    return len(text) > 1 and text[0] == text[-1] and text[0] in _QUOTES


def _warn_of_shown_secrets(given: list[Given], warn: Callable[[str], None]) -> None:
    """Warn of secrets on the command line: every user of the machine can read the arguments of a process."""
    for item in given:
        if (
            item.where == _COMMAND_LINE
            and _is_secret(item.key)
            and item.text
            and not item.text.startswith(("file:", "env:"))
        ):
            warn(
                f"command line: the value of {item.key} is visible to every user of this machine; give "
                f"{item.key}=file:///path or env:NAME, or set {ENVIRONMENT_PREFIX}{item.key} in the environment"
            )


def _warn_of_readable(file: Path, given: list[Given], warn: Callable[[str], None]) -> None:
    """Warn of a file with secrets as values that users outside its owner and group can read."""
    keys = [item.key for item in given if item.text and not item.text.startswith(("file:", "env:"))]
    held = [key for key in keys if _is_secret(key)]
    if held and is_readable_by_others(file):
        warn(f"file {file} holds {held[0]} and every user of this machine can read it; run: chmod o-rwx {file}")


def _is_secret(key: str) -> bool:
    row = SETTINGS.get(key)
    if row is not None:
        return row.secret
    from magnetar.broker.setting_suggestions import names_secret  # noqa: PLC0415 - needed by few starts

    return names_secret(key)


_OF_KAFKA_ON_PULSAR: Final = "leave the key of Kafka-on-Pulsar out: docs/features/converters.md has the way from there"
NO_TRANSACTIONS: Final = (
    "transactionCoordinatorEnabled=true: transactions are not served here; a client that begins one is refused"
)


def _judge_foreign(
    foreign: list[Given], kept: set[str], warn: Callable[[str], None], *, lists_unknown: bool
) -> list[str]:
    """The problems with keys that are not in the table; those that are none are listed in one warning.

    kept: keys of the table that are set.
    """
    if not foreign:
        return []
    from magnetar.broker.setting_areas.ignored import CHOICES, is_ignored  # noqa: PLC0415 - a long list, needed by few starts
    from magnetar.broker.setting_areas.refused import REFUSED  # noqa: PLC0415 - the same
    from magnetar.broker.setting_suggestions import (  # noqa: PLC0415 - the same
        is_of_kafka_on_pulsar,
        looks_like_security,
        nearest,
    )

    problems, without_effect, unknown = [], [], []
    for item in foreign:
        refusal = REFUSED.get(item.key)
        if refusal is not None and not refusal.allows(item.text) and kept.isdisjoint(refusal.kept_by):
            shown = "(hidden)" if _is_secret(item.key) else item.text
            problems.append(f"{item.where}: {item.key}={shown} has no effect here: {refusal.remedy}")
        elif item.text and item.text not in CHOICES.get(item.key, (item.text,)):
            choices = ", ".join(CHOICES[item.key])
            problems.append(f"{item.where}: {item.key} cannot be {item.text!r}: must be one of {choices}")
        elif refusal is not None or is_ignored(item.key):
            without_effect.append(item.key)
            if item.key == "transactionCoordinatorEnabled" and item.text.strip().lower() == "true":
                warn(NO_TRANSACTIONS)
        elif lists_unknown and not looks_like_security(item.key):
            unknown.append(item.key)
        elif is_of_kafka_on_pulsar(item.key):
            problems.append(f"{item.where}: unknown setting {item.key}; {_OF_KAFKA_ON_PULSAR}")
        else:
            meant = nearest(item.key)
            hint = f"did you mean {meant}?" if meant else "docs/settings.md lists all keys"
            problems.append(f"{item.where}: unknown setting {item.key}; {hint}")
    if without_effect:
        warn(f"of no effect here and ignored: {', '.join(without_effect)}")
    if unknown:
        warn(f"unknown and ignored (unknownSettings=list): {', '.join(unknown)}")
    return problems


def contradictions(settings: Settings) -> list[str]:
    """Problems with settings that are valid by themselves but not together."""
    problems = []
    if settings.broker_service_port_tls is not None or settings.web_service_port_tls is not None:
        for key, path in (
            ("tlsCertificateFilePath", settings.tls_certificate_file_path),
            ("tlsKeyFilePath", settings.tls_key_file_path),
        ):
            if not path:
                problems.append(f"{key} is needed by brokerServicePortTls and webServicePortTls")
    if settings.tls_require_trusted_client_cert_on_connect:
        if not settings.tls_trust_certs_file_path:
            problems.append(
                "tlsRequireTrustedClientCertOnConnect=true needs tlsTrustCertsFilePath: the certificates to trust"
            )
        if settings.tls_allow_insecure_connection:
            problems.append(
                "tlsRequireTrustedClientCertOnConnect=true and tlsAllowInsecureConnection=true contradict each other"
            )
    if settings.authorization_enabled and not settings.authentication_enabled:
        problems.append("authorizationEnabled=true needs authenticationEnabled=true")
    if settings.token_audience and not settings.token_audience_claim:
        problems.append("tokenAudience needs tokenAudienceClaim: without it no audience is looked at")
    if settings.authentication_enabled and not settings.authentication_providers:
        problems.append("authenticationEnabled=true needs authenticationProviders")
    if settings.message_converter_settings and not settings.message_converters:
        problems.append("messageConverterSettings needs messageConverters: no converter is loaded")
    if settings.broker_service_port is None and settings.broker_service_port_tls is None:
        problems.append("brokerServicePort and brokerServicePortTls are both empty: nothing to listen on")
    problems += _shared_ports(settings)
    problems += _invalid_names(settings)
    if (settings.default_retention_time_in_minutes == 0) != (settings.default_retention_size_in_mb == 0):
        problems.append(
            "defaultRetentionTimeInMinutes and defaultRetentionSizeInMB must both be 0 or both be set (-1 is unlimited)"
        )
    try:
        AdvertisedAddresses(settings)
    except ValueError as e:
        problems.append(str(e))
    return problems


_PORT_BEHIND: Final = re.compile(r"^[^:]*:[0-9]+$|\]:")


def _invalid_names(settings: Settings) -> list[str]:
    problems = []
    try:
        check_entity(settings.cluster_name)
    except InvalidTopicNameError:
        problems.append(
            f"clusterName cannot be {settings.cluster_name!r}: a name has letters, digits and the characters - = : . _"
        )
    problems += [
        f"httpAllowedHosts: {name!r} must be a host name without scheme and port"
        for name in settings.http_allowed_hosts
        if "/" in name or _PORT_BEHIND.search(name)
    ]
    return problems


def _shared_ports(settings: Settings) -> list[str]:
    """A problem for each port that two listeners of the broker would bind."""
    listeners = {
        "brokerServicePort": settings.broker_service_port,
        "brokerServicePortTls": settings.broker_service_port_tls,
        "webServicePort": settings.web_service_port,
        "webServicePortTls": settings.web_service_port_tls,
        "faultKitPort": settings.fault_kit_port,
    }
    first: dict[int, str] = {}
    problems = []
    for key, port in listeners.items():
        if port and first.setdefault(port, key) != key:
            problems.append(f"{first[port]} and {key} are both {port}: each needs a port of its own (0: any free port)")
    return problems
