from __future__ import annotations

import pytest

from magnetar.bookkeeper.jaas import read_section
from magnetar.bookkeeper.wire.digest_md5 import DigestCredentials

FILE = """
/* logins of the brokers { */
BookKeeper {
  org.apache.zookeeper.server.auth.DigestLoginModule required  // one user
  username="magnetar"
  password="a}\\"b//c";
};
Client { org.apache.zookeeper.server.auth.DigestLoginModule required username=zk password=pw; };
Kerberos { com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true; };
Other { a.b.OtherModule required; };
Empty { org.apache.zookeeper.server.auth.DigestLoginModule required username="x"; };
"""


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "login.conf"
    file.write_text(FILE)
    return str(file)


def test_sections_with_a_user_and_a_password(path):
    assert read_section(path, "BookKeeper") == DigestCredentials("magnetar", 'a}"b//c')
    assert read_section(path, "Client") == DigestCredentials("zk", "pw")
    assert read_section(path, "Missing") is None


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ("Kerberos", "Kerberos, which is not supported: use DigestLoginModule"),
        ("Other", "no DigestLoginModule"),
        ("Empty", "no password"),
    ],
)
def test_other_sections_are_refused(path, section, reason):
    with pytest.raises(ValueError, match=reason):
        read_section(path, section)


@pytest.mark.parametrize("text", ["BookKeeper", "BookKeeper {", "BookKeeper { x required; }", "{};", "a b { c d; };"])
def test_a_file_of_another_form_is_refused(tmp_path, text):
    file = tmp_path / "login.conf"
    file.write_text(text)
    with pytest.raises(ValueError, match="no login configuration"):
        read_section(str(file), "BookKeeper")
    with pytest.raises(ValueError, match="No such file"):
        read_section(str(tmp_path / "none"), "BookKeeper")
