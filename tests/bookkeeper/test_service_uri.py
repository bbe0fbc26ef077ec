from __future__ import annotations

import pytest

from magnetar.bookkeeper.errors import MetadataRequestError
from magnetar.bookkeeper.service_uri import ServiceUri, parse_service_uri


@pytest.mark.parametrize(
    ("uri", "servers", "root"),
    [
        ("zk+hierarchical://127.0.0.1:2181/ledgers", "127.0.0.1:2181", "/ledgers"),
        ("zk+null://a:1;b:2;c:3/x/ledgers/", "a:1,b:2,c:3", "/x/ledgers"),
        ("zk://a:1,b:2", "a:1,b:2", "/ledgers"),
        ("zk:a:1,b:2/my", "a:1,b:2", "/my"),
        ("metadata-store:zk:a:1/ledgers", "a:1", "/ledgers"),
        ("a:1", "a:1", "/ledgers"),
    ],
)
def test_addresses_as_bookkeeper_and_pulsar_write_them(uri, servers, root):
    assert parse_service_uri(uri) == ServiceUri(servers, root)


@pytest.mark.parametrize("uri", ["", "zk://", "etcd://a:1/x", "zk+hierarchical:///ledgers", "oxia://a"])
def test_others_are_refused(uri):
    with pytest.raises(MetadataRequestError):
        parse_service_uri(uri)
