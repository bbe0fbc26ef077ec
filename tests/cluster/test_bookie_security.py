"""TLS and SASL to a real bookie, which takes clients with a certificate and a password alone."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from magnetar.bookkeeper.bookies.tls import BookieSecurity, BookieTls
from magnetar.bookkeeper.client import BookKeeper
from magnetar.bookkeeper.errors import BookKeeperError
from magnetar.bookkeeper.options import ClientOptions, LedgerOptions
from magnetar.bookkeeper.wire.digest_md5 import DigestCredentials
from tests.cluster.broker_processes import Member, connect, initialize
from tests.cluster.conftest import LONG
from tests.cluster.secured_bookies import broker_settings, secured_cluster

pytestmark = [pytest.mark.timeout(180)]
long_only = pytest.mark.skipif(not LONG, reason="part of `make cluster`")

ONE = LedgerOptions(1, 1, 1)
USER = DigestCredentials("magnetar", 'se"cret')


@pytest.fixture(scope="module")
def secure(_services):
    """ZooKeeper and one bookie with TLS and SASL."""
    with secured_cluster(1) as made:
        yield made


def tls(secure, **changes):
    directory = secure.directory
    given = BookieTls(
        trust=f"{directory}/ca.pem", key=f"{directory}/client-key.pem", certificate=f"{directory}/client.pem"
    )
    return replace(given, **changes)


@contextlib.asynccontextmanager
async def client(secure, tls=None, credentials=None):
    options = ClientOptions(security=BookieSecurity(tls, credentials), add_quorum_timeout_s=3.0, connect_timeout_s=20.0)
    async with await BookKeeper.connect(f"zk+hierarchical://{secure.zookeeper}/ledgers", options) as made:
        yield made


async def round_trip(made):
    writer = await made.create(ONE)
    payloads = [b"%d" % number * 200_000 for number in range(5)]
    assert await writer.append_many(payloads) == range(5)
    await writer.close()
    reader = await made.open(writer.ledger_id)
    assert [bytes(entry.payload) async for entry in reader.entries()] == payloads


async def test_entries_go_over_tls_with_credentials(secure):
    async with client(secure, tls(secure, verify_names=True), USER) as made:
        await round_trip(made)
        (bookie,) = secure.bookies
        assert made._context.pool.connected(bookie)._transport.get_extra_info("ssl_object") is not None


@long_only
async def test_credentials_without_tls_and_key_stores_instead_of_pem_files(secure):
    async with client(secure, None, USER) as made:
        await round_trip(made)
    directory = secure.directory
    stores = BookieTls(
        trust=f"{directory}/client.p12",
        trust_kind="PKCS12",
        trust_password_file=f"{directory}/pw",
        key=f"{directory}/client.p12",
        key_kind="pkcs12",
        key_password_file=f"{directory}/pw",
    )
    async with client(secure, stores, USER) as made:
        await round_trip(made)


@long_only
@pytest.mark.parametrize(
    ("change", "credentials", "reason"),
    [
        ({"trust": "stranger.pem"}, USER, "certificate verify failed"),
        ({"key": "stranger.pem", "certificate": "stranger.pem"}, USER, ""),
        ({}, DigestCredentials("magnetar", "wrong"), "refuses the credentials"),
        ({}, None, ""),
    ],
    ids=["an unknown authority", "an unknown client", "a wrong password", "no password"],
)
async def test_no_other_client_gets_in(secure, change, credentials, reason):
    files = {name: f"{secure.directory}/{file}" for name, file in change.items()}
    async with client(secure, tls(secure, **files), credentials) as made:
        writer = await made.create(ONE)
        with pytest.raises(BookKeeperError):
            await writer.append(b"x")
        if reason:
            with pytest.raises(BookKeeperError, match=reason):
                await made._context.pool.get(secure.bookies[0], at_once=True)


def test_a_broker_uses_the_files_of_apache_pulsars_configuration(secure, tmp_path):
    initialize(secure)
    one = {f"managedLedgerDefault{each}": 1 for each in ("EnsembleSize", "WriteQuorum", "AckQuorum")}
    settings = one | broker_settings(secure.directory)
    member = Member(tmp_path, "s1", secure.zookeeper, **settings)
    try:
        made = connect(member.start())
        made.create_producer("secured").send(b"x")
        made.close()
    finally:
        member.end()
