"""The alerting rules: each names metrics that the broker writes, has a line in the runbook, fires when it should, and
stays silent otherwise (promtool, from Debian's package prometheus).
"""

import json
import pathlib
import re
import shutil
import subprocess

import pytest
import yaml

from tests.monitoring.metric_names import KNOWN, used_in

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = ROOT / "conf/alerts.yml"
ALERTS = {rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
B = 'instance="b"'
CONNECTION = 'broker="localhost",metric="broker_connection"'
T = 'topic="t",subscription="s"'
FIRING = {
    "MagnetarDown": {f'up{{job="magnetar",{B}}}': "0x90"},
    "MagnetarStorageFailed": {f"magnetar_storage_failed{{{B}}}": "1x90"},
    "MagnetarDiskFull": {f'magnetar_storage_full{{{B},source="journal"}}': "1x90"},
    "MagnetarDiskNearlyFull": {f"magnetar_storage_disk_used_ratio{{{B}}}": "0.9x90"},
    "MagnetarEntryDamaged": {f"magnetar_storage_corrupt_entries_total{{{B}}}": "1x90"},
    "MagnetarSyncSlow": {
        f'magnetar_journal_sync_seconds_bucket{{{B},le="0.1"}}': "0x90",
        f'magnetar_journal_sync_seconds_bucket{{{B},le="0.2"}}': "0+60x90",
        f'magnetar_journal_sync_seconds_bucket{{{B},le="+Inf"}}': "0+60x90",
    },
    "MagnetarLoopHeld": {f"magnetar_loop_slow_callback_ms_total{{{B}}}": "0+6000x90"},
    "MagnetarCoreBusy": {f'process_cpu_seconds_total{{job="magnetar",{B}}}': "0+59x90"},
    "MagnetarClientMemoryShort": {
        f"magnetar_client_memory_used_bytes{{{B}}}": "95x90",
        f"magnetar_client_memory_limit_bytes{{{B}}}": "100x90",
    },
    "MagnetarConnectionsShort": {
        f"pulsar_active_connections{{{B},{CONNECTION}}}": "95x90",
        f"magnetar_connections_limit{{{B}}}": "100x90",
    },
    "MagnetarDescriptorsShort": {
        f'process_open_fds{{job="magnetar",{B}}}': "95x90",
        f'process_max_fds{{job="magnetar",{B}}}': "100x90",
    },
    "MagnetarCertificateExpires": {f"magnetar_tls_certificate_end_seconds{{{B}}}": "86400x90"},
    "MagnetarAuthenticationFailures": {f'pulsar_authentication_failures_total{{{B},reason="EXPIRED"}}': "0+120x90"},
    "MagnetarBacklogGrows": {f"pulsar_subscription_back_log_no_delayed{{{T}}}": "20000+100x90"},
    "MagnetarSubscriptionStuck": {
        f"pulsar_subscription_back_log_no_delayed{{{T}}}": "5x90",
        f"pulsar_subscription_consumers_count{{{T}}}": "1x90",
        f"pulsar_subscription_msg_rate_out{{{T}}}": "0x90",
        f"pulsar_subscription_msg_ack_rate{{{T}}}": "0x90",
    },
    "MagnetarSubscriptionAbandoned": {
        f"pulsar_subscription_back_log{{{T}}}": "5x90",
        f"pulsar_subscription_consumers_count{{{T}}}": "0x90",
    },
    "MagnetarSubscriptionBlocked": {f"pulsar_subscription_blocked_on_unacked_messages{{{T}}}": "1x90"},
    "MagnetarBacklogQuotaNear": {
        'pulsar_storage_backlog_size{topic="t"}': "95x90",
        'pulsar_storage_backlog_quota_limit{topic="t"}': "100x90",
    },
    "MagnetarDelayedLate": {
        f'magnetar_delayed_lateness_ms_bucket{{{B},topic="t",le="10000"}}': "0x90",
        f'magnetar_delayed_lateness_ms_bucket{{{B},topic="t",le="30000"}}': "0+60x90",
        f'magnetar_delayed_lateness_ms_bucket{{{B},topic="t",le="+Inf"}}': "0+60x90",
    },
}
"""Series of ninety minutes under which an alert fires at their end."""
CALM = {
    "MagnetarDown": {f'up{{job="magnetar",{B}}}': "1x90"},
    "MagnetarStorageFailed": {f"magnetar_storage_failed{{{B}}}": "0x90"},
    "MagnetarDiskFull": {f'magnetar_storage_full{{{B},source="journal"}}': "0x90"},
    "MagnetarDiskNearlyFull": {f"magnetar_storage_disk_used_ratio{{{B}}}": "0.5x90"},
    "MagnetarEntryDamaged": {f"magnetar_storage_corrupt_entries_total{{{B}}}": "0x90"},
    "MagnetarSyncSlow": {
        f'magnetar_journal_sync_seconds_bucket{{{B},le="0.1"}}': "0+60x90",
        f'magnetar_journal_sync_seconds_bucket{{{B},le="+Inf"}}': "0+60x90",
    },
    "MagnetarLoopHeld": {f"magnetar_loop_slow_callback_ms_total{{{B}}}": "0+100x90"},
    "MagnetarCoreBusy": {f'process_cpu_seconds_total{{job="magnetar",{B}}}': "0+20x90"},
    "MagnetarClientMemoryShort": {
        f"magnetar_client_memory_used_bytes{{{B}}}": "5x90",
        f"magnetar_client_memory_limit_bytes{{{B}}}": "100x90",
    },
    "MagnetarConnectionsShort": {
        f"pulsar_active_connections{{{B},{CONNECTION}}}": "5x90",
        f"magnetar_connections_limit{{{B}}}": "100x90",
    },
    "MagnetarDescriptorsShort": {
        f'process_open_fds{{job="magnetar",{B}}}': "5x90",
        f'process_max_fds{{job="magnetar",{B}}}': "100x90",
    },
    "MagnetarCertificateExpires": {f"magnetar_tls_certificate_end_seconds{{{B}}}": "8640000x90"},
    "MagnetarAuthenticationFailures": {f'pulsar_authentication_failures_total{{{B},reason="EXPIRED"}}': "0+1x90"},
    "MagnetarBacklogGrows": {f"pulsar_subscription_back_log_no_delayed{{{T}}}": "20000-100x90"},
    "MagnetarSubscriptionStuck": {
        f"pulsar_subscription_back_log_no_delayed{{{T}}}": "5x90",
        f"pulsar_subscription_consumers_count{{{T}}}": "1x90",
        f"pulsar_subscription_msg_rate_out{{{T}}}": "3x90",
        f"pulsar_subscription_msg_ack_rate{{{T}}}": "0x90",
    },
    "MagnetarSubscriptionAbandoned": {
        f"pulsar_subscription_back_log{{{T}}}": "5x90",
        f"pulsar_subscription_consumers_count{{{T}}}": "1x90",
    },
    "MagnetarSubscriptionBlocked": {f"pulsar_subscription_blocked_on_unacked_messages{{{T}}}": "0x90"},
    "MagnetarBacklogQuotaNear": {
        'pulsar_storage_backlog_size{topic="t"}': "95x90",
        'pulsar_storage_backlog_quota_limit{topic="t"}': "-1x90",
    },
    "MagnetarDelayedLate": {
        f'magnetar_delayed_lateness_ms_bucket{{{B},topic="t",le="10000"}}': "0+60x90",
        f'magnetar_delayed_lateness_ms_bucket{{{B},topic="t",le="+Inf"}}': "0+60x90",
    },
}
"""Series under which the alert does not fire."""


def case(alert, series, *, fires):
    """A test of promtool: whether the alert fires at the end of the series."""
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)',
                "eval_time": "90m",
                "exp_samples": [{"labels": "{}", "value": int(fires)}],
            }
        ],
    }


def test_every_alert_has_series_that_fire_it_and_series_that_do_not():
    assert set(FIRING) == set(CALM) == set(ALERTS)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is missing: install the package prometheus")
def test_alerts_fire_and_stay_silent_as_they_should(tmp_path):
    cases = [case(name, series, fires=True) for name, series in FIRING.items()]
    cases += [case(name, series, fires=False) for name, series in CALM.items()]
    found = tmp_path / "alerts_test.yml"
    found.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": cases}))
    ran = subprocess.run(["promtool", "test", "rules", str(found)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_reads_metrics_that_exist(name):
    used = used_in(ALERTS[name]["expr"])
    assert used and used <= KNOWN


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_a_line_in_the_runbook(name):
    page, _, anchor = ALERTS[name]["annotations"]["runbook"].partition("#")
    assert anchor == name.lower()
    assert re.search(rf"^### {name}$", (ROOT / page).read_text(), re.MULTILINE)
