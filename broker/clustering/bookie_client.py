"""The settings of the BookKeeper client, from those of the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from magnetar.bookkeeper.bookies.isolation import isolation_groups
from magnetar.bookkeeper.bookies.placement import PlacementRules
from magnetar.bookkeeper.bookies.tls import BookieSecurity, BookieTls, TlsFilesError, tls_context
from magnetar.bookkeeper.jaas import read_section
from magnetar.bookkeeper.options import ClientOptions
from magnetar.bookkeeper.wire.frames import DEFAULT_MAX_FRAME_BYTES

if TYPE_CHECKING:
    from magnetar.bookkeeper.wire.digest_md5 import DigestCredentials
    from magnetar.broker.settings import Settings

__all__ = ["client_options"]

_SECTION: Final = "BookKeeper"
"""The default of Apache BookKeeper."""
_FRAME_PADDING: Final = 10 * 1024
"""The bytes of an entry in addition to the largest message; bookies of Apache Pulsar have this limit configured."""


def client_options(settings: Settings) -> ClientOptions:
    """Deadlines, limits, placement, TLS and credentials. Raises ValueError for files that cannot be used."""
    groups = settings.bookkeeper_client_isolation_groups
    quarantine_s = float(settings.bookkeeper_client_health_check_quarantine_time_in_seconds)
    timeout_s = float(settings.bookkeeper_client_timeout_in_seconds)
    local = settings.bookkeeper_client_reorder_read_sequence_enabled
    return ClientOptions(
        add_timeout_s=timeout_s,
        read_timeout_s=timeout_s,
        unanswered_timeout_s=12 * timeout_s,
        speculative_read_s=settings.bookkeeper_client_speculative_read_timeout_in_millis / 1000,
        quarantine_s=quarantine_s if settings.bookkeeper_client_health_check_enabled else 0.0,
        quarantine_ratio=settings.bookkeeper_client_quarantine_ratio,
        max_frame_bytes=max(settings.max_message_size + _FRAME_PADDING, DEFAULT_MAX_FRAME_BYTES),
        local_host=(settings.advertised_address or "") if local else "",
        disk_weights=settings.bookkeeper_disk_weight_based_placement_enabled,
        disk_info_interval_s=float(settings.bookkeeper_client_get_bookie_info_interval_seconds),
        disk_info_retry_s=float(settings.bookkeeper_client_get_bookie_info_retry_interval_seconds),
        security=_security(settings),
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


def _security(settings: Settings) -> BookieSecurity:
    return BookieSecurity(_tls(settings), _credentials(settings))


def _tls(settings: Settings) -> BookieTls | None:
    if not settings.bookkeeper_tls_client_authentication:
        return None
    tls = BookieTls(
        trust=settings.bookkeeper_tls_trust_certs_file_path,
        trust_kind=settings.bookkeeper_tls_trust_cert_types,
        trust_password_file=settings.bookkeeper_tls_trust_store_password_path,
        key=settings.bookkeeper_tls_key_file_path,
        key_kind=settings.bookkeeper_tls_key_file_type,
        key_password_file=settings.bookkeeper_tls_key_store_password_path,
        certificate=settings.bookkeeper_tls_certificate_file_path,
        verify_names=settings.bookkeeper_tls_hostname_verification_enabled,
        refresh_s=float(settings.bookkeeper_tls_cert_files_refresh_duration_seconds),
    )
    try:
        tls_context(tls)
    except TlsFilesError as error:
        raise ValueError(f"bookkeeperTLSClientAuthentication=true: {error}") from error
    return tls


def _credentials(settings: Settings) -> DigestCredentials | None:
    if not settings.bookkeeper_client_authentication_plugin:
        return None
    path, section = settings.jaas_login_config_path, ""
    if settings.bookkeeper_client_authentication_parameters_name:
        section = settings.bookkeeper_client_authentication_parameters
    if not path:
        raise ValueError(
            "bookkeeperClientAuthenticationPlugin needs jaasLoginConfigPath, the file with the user and the password"
        )
    found = read_section(path, section or _SECTION)
    if found is None:
        raise ValueError(f"jaasLoginConfigPath: {path} has no section {section or _SECTION}")
    return found
