"""Failed requests to the admin API: the class of the error, and the remedy in its text."""

import json
import ssl
import urllib.error

import pytest

from magnetar.cli import errors
from magnetar.cli.target import Target
from magnetar.cli.web import Web, refusal
from magnetar.client.address import Credentials
from magnetar.client.admin import AdminApi

WITHOUT = Target("t", "pulsar://h:1", "http://h:2", Credentials())
WITH = Target("t", "pulsar://h:1", "http://h:2", Credentials(token="secret"))


def refused(status, reason, target):
    return refusal(status, json.dumps({"reason": reason}).encode(), target)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.CommandLineError),
        (404, errors.NotFoundError),
        (409, errors.ConflictError),
        (422, errors.CommandLineError),
        (500, errors.BrokerFailedError),
        (503, errors.UnreachableError),
    ],
)
def test_a_status_is_a_class(status, kind):
    error = refused(status, "the reason", WITH)
    assert type(error) is kind
    assert str(error) == "the reason"


def test_a_refusal_without_credentials_names_the_flag():
    text = str(refused(401, "Authentication required", WITHOUT))
    assert "--token file:PATH" in text and "certificate in a context" in text
    assert "permissions grant" in str(refused(403, "Unauthorized", WITHOUT))


def test_credentials_that_prove_no_role_are_not_answered_as_if_there_were_none():
    text = str(refused(401, "Authentication required", WITH))
    assert text.startswith("Authentication required (the broker does not accept the credentials: ")
    assert str(refused(401, "Unauthorized to grant", WITH)) == "Unauthorized to grant"


@pytest.mark.parametrize("target", [WITHOUT, WITH])
def test_a_tenant_of_another_cluster_name_needs_no_grant(target):
    reason = "Cluster [b] is not in the list of allowed clusters list for tenant [acme]"
    text = str(refused(403, reason, target))
    assert "magnetar admin tenants update TENANT --allowed-clusters" in text
    assert "grant" not in text


def test_a_certificate_that_is_not_trusted_names_its_flag(monkeypatch):
    def refuse(*_):
        reason = ssl.SSLCertVerificationError(1, "certificate verify failed")
        reason.verify_message = "certificate has expired"
        raise urllib.error.URLError(reason)

    web = Web(WITH)
    monkeypatch.setattr(AdminApi, "fetch", refuse)
    with pytest.raises(errors.UnreachableError, match=r"\(certificate has expired\): .*--tls-trust-certs") as caught:
        web.get("/x")
    assert "is the broker up" not in str(caught.value)


def test_a_lost_connection_of_a_client_with_a_certificate_may_mean_that_the_certificate_is_not_trusted(monkeypatch):
    def lose(*_):
        raise OSError("the connection is closed")

    monkeypatch.setattr(AdminApi, "fetch", lose)
    for credentials, hint in ((Credentials(), False), (Credentials(tls_cert="me.pem", tls_key="key.pem"), True)):
        web = Web(Target("t", "pulsar+ssl://h:1", "https://h:2", credentials))
        with pytest.raises(errors.UnreachableError, match="is the broker up") as caught:
            web.get("/x")
        assert ("tls.refused in the broker's log means that it does not trust me.pem" in str(caught.value)) is hint
