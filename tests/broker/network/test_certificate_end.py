"""The end of a certificate against the values of the library cryptography."""

import datetime as dt

import pytest
from cryptography import x509

from magnetar.broker.network.certificate_end import certificate_end_s
from tests.broker.admin.test_admin_server import Certificates


@pytest.mark.parametrize(
    "end", [dt.datetime(2031, 2, 3, 4, 5, 6, tzinfo=dt.UTC), dt.datetime(2060, 1, 1, tzinfo=dt.UTC)]
)
def test_the_end_of_a_certificate_in_both_forms_of_time(tmp_path, end):
    path = tmp_path / "cert.pem"
    chain = Certificates(tmp_path).authority[0]
    certificate, _ = Certificates(tmp_path).make("localhost", end)
    with open(certificate, encoding="ascii") as own, open(chain, encoding="ascii") as authority:
        path.write_text(f"a comment\n{own.read()}{authority.read()}")
    assert certificate_end_s(path) == end.timestamp()
    assert x509.load_pem_x509_certificate(path.read_bytes().partition(b"\n")[2]).not_valid_after_utc == end


@pytest.mark.parametrize("content", ["", "text", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"])
def test_a_file_without_a_certificate_has_no_end(tmp_path, content):
    path = tmp_path / "cert.pem"
    path.write_text(content)
    assert certificate_end_s(path) is None
    assert certificate_end_s(tmp_path / "missing.pem") is None
