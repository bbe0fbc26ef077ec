"""The texts for roles without a right have the operation and the resource, for every route of Apache Pulsar."""

import pytest

from magnetar.broker.admin.app import all_routes
from magnetar.broker.auth.table import Resource
from magnetar.broker.compat.denied_requests import Claim, denied_text

NAMES = {"tenant": "t", "namespace": "n", "topic": "persistent://t/n/x", "cluster": "c"}
WITHOUT_A_TEXT = {  # of Magnetar alone, or refused in other words by Apache Pulsar
    ("GET", "/admin/v2/namespaces/{cluster}/antiAffinity/{group}"),
    ("GET", "/admin/v2/namespaces/{tenant}/{namespace}/scanOffloadedLedgers"),
    ("GET", "/admin/v2/{domain:domain}/{tenant}/{namespace}/{topic}/delayedMessages"),
    ("DELETE", "/admin/v2/{domain:domain}/{tenant}/{namespace}/{topic}/delayedMessages/ledger/{ledger}/entry/{entry}"),
}


def text(method, path, original=None, **claimed):
    return denied_text(method, path, NAMES, Claim("r", original, **claimed), "h:1")


def test_each_route_that_needs_a_right_has_a_text():
    guarded = {(row.method, row.path) for row in all_routes() if row.need.resource is not Resource.NOTHING}
    assert {route for route in guarded if text(*route) is None} == WITHOUT_A_TEXT


ROLES = "for originalPrincipal [null] and clientAppId [r] about operation"
TEXTS = {
    ("GET", "/admin/v2/namespaces/{tenant}/{namespace}/retention"): (
        "Unauthorized to validateNamespacePolicyOperation for operation [READ] on namespace [t/n] on policy [RETENTION]"
    ),
    ("DELETE", "/admin/v2/{domain:domain}/{tenant}/{namespace}/{topic}/maxProducers"): (
        "Unauthorized to validateTopicPolicyOperation for operation [WRITE] on topic [persistent://t/n/x] "
        "on policy [MAX_PRODUCERS]"
    ),
    ("POST", "/admin/v2/clusters/{cluster}"): (
        f"Unauthorized to validateBothSuperuserAndClusterOperation {ROLES} [UPDATE_CLUSTER] on cluster [c]"
    ),
    ("GET", "/admin/v2/brokers"): (
        f"Unauthorized to validateBothSuperuserAndBrokerOperation {ROLES} [LIST_BROKERS] on broker [h:1]"
    ),
}


@pytest.mark.parametrize("route", TEXTS)
def test_the_text_has_operation_and_resource(route):
    assert text(*route) == TEXTS[route]


def test_the_text_has_the_principal_of_a_proxy():
    assert "originalPrincipal [o] and clientAppId [r]" in text("GET", "/admin/v2/tenants", original="o")
    assert "originalPrincipal [] and clientAppId [r]" in text("GET", "/admin/v2/tenants", original="")


def test_administrators_of_a_tenant_behind_a_proxy():
    route = ("POST", "/admin/v2/{domain:domain}/{tenant}/{namespace}/{topic}/permissions/{role}")
    assert text(*route) == "Don't have permission to administrate resources on this tenant"
    invalid = "Invalid combination of Original principal cannot be empty if the request is via proxy."
    assert text(*route, original="o", is_valid=False) == text(*route, is_valid=False, is_proxy=True) == invalid
    denied = "Proxy not authorized to access resource (proxy:r,original:o)"
    assert text(*route, original="o", is_proxy=True) == denied


def test_braces_in_a_name_are_no_fields():
    names = NAMES | {"cluster": "{role}"}
    assert "on cluster [{role}]" in denied_text("GET", "/admin/v2/clusters/{cluster}", names, Claim("r", None), "b")
