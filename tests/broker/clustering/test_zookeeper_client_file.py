"""The file with ZooKeeper's own client settings."""

from __future__ import annotations

import pytest

from magnetar.broker.clustering.zookeeper_client_file import ZooKeeperSecurity, read_security, zookeeper_options


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
def test_unsupported_security_is_refused(tmp_path, text, reason):
    with pytest.raises(ValueError, match=reason):
        read_security(written(tmp_path, text))


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ValueError, match="metadataStoreConfigPath"):
        read_security(str(tmp_path / "none"))


LOGIN = 'Client { a.DigestLoginModule required username="u" password="p"; }; Own { a.DigestLoginModule required '


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (None, "u"),
        ("", "u"),
        ("zookeeper.sasl.client=true", "u"),
        ("zookeeper.sasl.client=false", None),
        ("zookeeper.sasl.clientconfig=Own", "own"),
    ],
)
def test_a_login_comes_from_a_section_of_the_login_file(tmp_path, lines, expected):
    login = tmp_path / "login.conf"
    login.write_text(LOGIN + 'username="own" password="p"; };')
    path = ""
    if lines is not None:
        (tmp_path / "zk.conf").write_text(lines)
        path = str(tmp_path / "zk.conf")
    found = read_security(path, str(login))
    assert (found.login and found.login.username) == expected
    sasl = zookeeper_options("a:1", found, 6000).sasl
    assert sasl == ({} if expected is None else {"mechanism": "DIGEST-MD5", "username": expected, "password": "p"})


@pytest.mark.parametrize("line", ["zookeeper.sasl.client=true", "zookeeper.sasl.clientconfig=Own"])
def test_a_login_without_its_file_is_refused(tmp_path, line):
    (tmp_path / "zk.conf").write_text(line)
    with pytest.raises(ValueError, match="needs jaasLoginConfigPath"):
        read_security(str(tmp_path / "zk.conf"))
    (tmp_path / "login.conf").write_text("")
    if "clientconfig" in line:
        with pytest.raises(ValueError, match="has no section Own"):
            read_security(str(tmp_path / "zk.conf"), str(tmp_path / "login.conf"))
