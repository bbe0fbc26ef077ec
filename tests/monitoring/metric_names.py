"""Names of metrics in PromQL expressions, and names of metrics that exist."""

import re

from prometheus_client.parser import text_string_to_metric_families

from tests.broker.prometheus.test_help_texts import full_page

_NAME = re.compile(r"\b((?:pulsar|magnetar|process|python|jvm|caffeine)_\w+|up)\b")
KNOWN = {sample.name for family in text_string_to_metric_families(full_page()) for sample in family.samples} | {"up"}
"""Names of samples: those of /metrics, and that of Prometheus itself."""


def used_in(expression):
    """The metrics that an expression reads."""
    return set(_NAME.findall(expression))
