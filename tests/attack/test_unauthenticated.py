"""Peers that prove no role, against a broker that asks for one (docs/security.md)."""

import base64
import contextlib
import json
import socket
import struct
import time
import urllib.parse

import pytest

from magnetar.protocol import pulsar_api_pb2 as pb
from tests.attack.conftest import MIB, SECURED, Target, connect, http, token
from tests.blackbox.raw import RawPeer, command, frame

HTPASSWD = "known:$apr1$foobarmq$kuSZlLgOITksCkRgl57ie/\n"  # superpassword
UNKNOWN_FIELD = b"\xf8\x3f\x01"


def connect_with(**fields):
    return command("CONNECT", "connect", **{"client_version": "raw", "protocol_version": 21} | fields)


def test_a_grant_with_a_name_of_many_megabytes_is_not_read(secured):
    body = json.dumps([{"topic": "a/b/" + "x" * 15 * MIB, "role": "r", "actions": ["produce"]}]).encode()
    with secured.watch() as watch:
        for _ in range(18):
            status, _ = http(secured.broker, "POST", "/admin/v2/namespaces/grantPermissionsOnTopics", body)
            assert status in (401, 0)
    secured.unharmed(watch)


def test_a_grant_of_two_hundred_thousand_topics_is_not_read(secured):
    body = json.dumps([{"topic": f"persistent://a/b/{n}", "role": "r", "actions": []} for n in range(200_000)]).encode()
    with secured.watch() as watch:
        for role in (None, "nobody"):
            status, _ = http(secured.broker, "POST", "/admin/v2/namespaces/grantPermissionsOnTopics", body, role)
            assert status in (401, 0)
        status, _ = http(secured.broker, "POST", "/admin/v2/namespaces/grantPermissionsOnTopics", body, "admin")
        assert status in (413, 0)
    secured.unharmed(watch)


def test_names_of_megabytes_in_lookups_are_not_kept(secured):
    with secured.watch() as watch:
        for number in range(40):
            peer = connect(secured.broker.url, "nobody")
            name = f"persistent://a/b/{number}" + "x" * 1_000_000
            found = peer.ask("LOOKUP", "lookupTopic", topic=name, authoritative=False)
            assert found.lookupTopicResponse.error in (pb.InvalidTopicName, pb.AuthorizationError)
            peer.close()
    secured.unharmed(watch)


def test_a_command_larger_than_any_sensible_one_ends_its_connection(secured):
    with secured.watch() as watch:
        peer = connect(secured.broker.url, "nobody")
        peer.write(frame(command("LOOKUP", "lookupTopic", topic="x" * 3 * MIB, request_id=1, authoritative=False)))
        assert peer.is_closed()
    secured.unharmed(watch)


@pytest.mark.parametrize("size", [60_000, 3_400_000])
def test_a_connect_with_unknown_fields_and_a_text_that_is_none(secured, size):
    raw = connect_with(client_version="swap").SerializeToString()
    connect_at = raw.index(b"\x12")
    inner = raw[connect_at + 2 :].replace(b"swap", b"\xff\xfe\xfd\xfc") + UNKNOWN_FIELD * (size // 3)
    length, number = b"", len(inner)
    while number > 0x7F:
        length, number = length + bytes([number & 0x7F | 0x80]), number >> 7
    data = raw[:connect_at] + b"\x12" + length + bytes([number]) + inner
    whole = struct.pack(">II", 4 + len(data), len(data)) + data
    with secured.watch() as watch:
        for _ in range(5):
            peer = RawPeer(secured.broker.url, handshake=False)
            with contextlib.suppress(ConnectionError):
                peer.write(whole)
            assert peer.is_closed()  # no proof, or too large
            peer.close()
    secured.unharmed(watch)


def test_sixty_unfinished_frames_of_five_mebibytes(secured):
    peers = [RawPeer(secured.broker.url, handshake=False) for _ in range(60)]
    with secured.watch() as watch:
        for peer in peers:
            try:
                peer.write(struct.pack(">II", 5 * MIB, 4 * MIB))
                peer.write(bytes(MIB))
            except ConnectionError:
                pass
        assert all(peer.is_closed() for peer in peers)
    secured.unharmed(watch)


def test_six_hundred_unfinished_frames_of_the_size_that_is_allowed(secured):
    peers = [RawPeer(secured.broker.url, handshake=False) for _ in range(600)]
    with secured.watch() as watch:
        for peer in peers:
            peer.write(struct.pack(">II", 65_000, 60_000) + bytes(60_000))
        time.sleep(0.5)
    secured.unharmed(watch, most_mib=600 * 0.08 + 48)
    for peer in peers:
        peer.close()


def test_a_method_name_of_four_megabytes_writes_a_short_line(secured):
    before = len(secured.broker.log_text())
    for size in (50_000, 4_000_000):
        peer = RawPeer(secured.broker.url, handshake=False)
        with contextlib.suppress(ConnectionError):
            peer.write(frame(connect_with(auth_method_name="m\n\x1b[2J" * (size // 6), auth_data=b"x")))
        assert peer.is_closed()
        peer.close()
    grown = secured.broker.log_text()[before:]
    assert len(grown) < 8000 and "\x1b" not in grown
    secured_lines = [line for line in grown.splitlines() if "authentication.failed" in line]
    assert len(secured_lines) == 1


class TestPasswords:
    @pytest.fixture
    def target(self, new_broker):
        conf = "data:;base64," + base64.b64encode(HTPASSWD.encode()).decode()
        providers = {"authenticationProviders": "token,basic", "basicAuthConf": conf}
        target = Target(new_broker(**SECURED | providers))
        yield target
        assert target.broker.stop() == 0

    @staticmethod
    def refused(broker, user, password):
        """Seconds until CONNECT with these is refused."""
        peer = RawPeer(broker.url, handshake=False)
        began = time.monotonic()
        with contextlib.suppress(ConnectionError):
            peer.write(frame(connect_with(auth_method_name="basic", auth_data=user + b":" + password)))
        assert peer.is_closed(30)
        peer.close()
        return time.monotonic() - began

    @pytest.mark.parametrize("size", [1025, 60_000, 5_000_000])
    def test_a_password_of_megabytes(self, target, size):
        with target.watch() as watch:
            for _ in range(5):
                self.refused(target.broker, b"known", b"x" * size)
        target.unharmed(watch)

    def test_many_passwords_at_once(self, target):
        proof = frame(connect_with(auth_method_name="basic", auth_data=b"known:" + b"x" * 1000))
        peers = [RawPeer(target.broker.url, handshake=False) for _ in range(300)]
        with target.watch() as watch:
            for peer in peers:
                peer.write(proof)
            assert all(peer.is_closed(30) for peer in peers)
        target.unharmed(watch)

    def test_the_time_of_an_answer_does_not_tell_which_users_there_are(self, target):
        """The broker checks both passwords. The test compares the processor time of the broker."""
        costs = {}
        for user in (b"known", b"other"):
            before = target.broker.cpu_seconds
            for number in range(100):
                self.refused(target.broker, user, b"%d" % number + b"x" * 900)
            costs[user] = target.broker.cpu_seconds - before
        assert costs[b"other"] > costs[b"known"] / 2


def test_a_token_proves_a_role(secured):
    """The handshake of the fixture works, so refusals in the other tests do not come from a broken handshake."""
    peer = connect(secured.broker.url, "admin")
    peer.producer("persistent://public/default/t")
    peer.close()
    stranger = RawPeer(secured.broker.url, handshake=False)
    stranger.write(frame(connect_with(auth_method_name="token", auth_data=token("admin").encode()[:-2] + b"AA")))
    assert stranger.receive().type == pb.BaseCommand.ERROR


def test_invalid_requests_and_frames_do_not_flood_the_log(secured):
    before = len(secured.broker.log_text().splitlines())
    for number in range(300):
        for url, data in ((secured.broker.http, b"%d\x00\r\n\r\n" % number), (secured.broker.url, b"\xff" * 8)):
            address = urllib.parse.urlsplit(url)
            with socket.create_connection((address.hostname, address.port), 60) as peer:
                peer.sendall(data)
                while peer.recv(4096):
                    pass
    assert len(secured.broker.log_text().splitlines()) - before < 250
