"""The settings of the BookKeeper client, from those of the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from magnetar.bookkeeper.bookies.isolation import isolation_groups
from magnetar.bookkeeper.bookies.placement import PlacementRules
from magnetar.bookkeeper.options import ClientOptions
from magnetar.bookkeeper.wire.frames import DEFAULT_MAX_FRAME_BYTES

if TYPE_CHECKING:
    from magnetar.broker.settings import Settings

__all__ = ["client_options"]

_FRAME_PADDING: Final = 10 * 1024
"""Of an entry around the largest message: what Apache Pulsar's bookies are configured for."""


def client_options(settings: Settings) -> ClientOptions:
    """Deadlines, limits and placement."""
    groups = settings.bookkeeper_client_isolation_groups
    quarantine_s = float(settings.bookkeeper_client_health_check_quarantine_time_in_seconds)
    timeout_s = float(settings.bookkeeper_client_timeout_in_seconds)
    local = settings.bookkeeper_client_reorder_read_sequence_enabled
    return ClientOptions(
        add_timeout_s=timeout_s,
        read_timeout_s=timeout_s,
        speculative_read_s=settings.bookkeeper_client_speculative_read_timeout_in_millis / 1000,
        quarantine_s=quarantine_s if settings.bookkeeper_client_health_check_enabled else 0.0,
        quarantine_ratio=settings.bookkeeper_client_quarantine_ratio,
        max_frame_bytes=max(settings.max_message_size + _FRAME_PADDING, DEFAULT_MAX_FRAME_BYTES),
        local_host=(settings.advertised_address or "") if local else "",
        placement=PlacementRules(
            rack_aware=settings.bookkeeper_client_rackaware_policy_enabled,
            region_aware=settings.bookkeeper_client_regionaware_policy_enabled,
            min_racks_per_write_quorum=settings.bookkeeper_client_min_num_racks_per_write_quorum,
            enforce_min_racks=settings.bookkeeper_client_enforce_min_num_racks_per_write_quorum,
            isolation=isolation_groups(groups, settings.bookkeeper_client_secondary_isolation_groups)
            if groups
            else None,
        ),
    )
