"""The file with ZooKeeper's own client settings."""

from __future__ import annotations

import pytest

from magnetar.broker.clustering.zookeeper_client_file import ZooKeeperSecurity, read_security


def written(tmp_path, text):
    for name in ("ca.pem", "own.pem"):
        (tmp_path / name).touch()
    file = tmp_path / "zookeeper.properties"
    file.write_text(text.replace("DIR", str(tmp_path)))
    return str(file)


def test_no_file_and_an_empty_one_are_a_plain_connection(tmp_path):
    assert read_security("") == ZooKeeperSecurity()
    assert read_security(written(tmp_path, "# nothing\n\n")) == ZooKeeperSecurity()


def test_tls_with_pem_files(tmp_path):
    found = read_security(
        written(
            tmp_path,
            "zookeeper.client.secure = true\nzookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty\n"
            "zookeeper.ssl.trustStore.location=DIR/ca.pem\nzookeeper.ssl.trustStore.type=PEM\n"
            "zookeeper.ssl.keyStore.location=DIR/own.pem\nzookeeper.ssl.hostnameVerification=false\n",
        )
    )
    assert found == ZooKeeperSecurity(
        tls=True, ca_file=str(tmp_path / "ca.pem"), certificate_file=str(tmp_path / "own.pem"), verify_names=False
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("zookeeper.ssl.trustStore.location=DIR/ca.pem", "need zookeeper.client.secure=true"),
        ("zookeeper.client.secure=true\nzookeeper.ssl.trustStore.location=DIR/none.pem", "there is no file"),
        ("zookeeper.client.secure=true\nzookeeper.ssl.trustStore.type=JKS", "PEM only"),
        ("zookeeper.client.secure=true\nzookeeper.ssl.crl=true", "has no effect here"),
        ("zookeeper.sasl.client.username=zk", "has no effect here"),
    ],
)
def test_what_would_not_be_kept_is_refused(tmp_path, text, reason):
    with pytest.raises(ValueError, match=reason):
        read_security(written(tmp_path, text))


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ValueError, match="metadataStoreConfigPath"):
        read_security(str(tmp_path / "none"))
