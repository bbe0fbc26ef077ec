"""A warning where the broker gives imported entries to clients as they are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from magnetar.client.admin import AdminApi
    from magnetar.importing.progress import Progress

_SETTINGS: Final = "/admin/v2/brokers/configuration/runtime"
_NONE: Final = "[]"


def warn_unless_converted(admin: AdminApi, progress: Progress) -> None:
    """Warn where the broker has no converter. Without the right to read its settings there is no warning."""
    try:
        settings = admin.call("GET", _SETTINGS)
    except (OSError, ValueError):
        return
    if isinstance(settings, dict) and settings.get("messageConverters") == _NONE:
        progress.complain(
            "warning",
            "the broker converts no entries, so that its clients get Kafka's bytes as they are stored: start the "
            "broker with messageConverters=kafka, before or after the import",
        )
