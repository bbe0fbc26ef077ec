"""The identity of a connection behind a proxy: the proof of the proxy's client, and its refreshment."""

from types import SimpleNamespace

import pytest

from magnetar.broker.auth.authenticator import Authenticator
from magnetar.broker.auth.authorizer import Authorizer
from magnetar.broker.auth.sessions import AuthServices, AuthSession
from magnetar.broker.errors import AuthenticationError, AuthorizationError, ConnectionFatalError
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.topic_name import TopicName
from tests.broker.auth.test_auth import NOW_MS, NOW_S, settings, token


class Peer:
    """A connection whose timers run on demand."""

    connection_id, address, negotiated_version = 1, "/127.0.0.1:1", 21

    def __init__(self):
        self.loop, self.features = self, pb.FeatureFlags(supports_auth_refresh=True)
        self.closed, self.tick, self.challenges = False, None, 0

    def call_later(self, _seconds, callback):
        self.tick = callback

    def peer_certificate(self):
        return None

    def write(self, _data):
        self.challenges += 1

    def close(self):
        self.closed = True


class World:
    """A session of the role `proxy`, on a clock that the test sets."""

    def __init__(self, *, verified=True, **more):
        config = settings(
            authorization_enabled=True, proxy_roles=("proxy",), authenticate_original_auth_data=verified, **more
        )
        self.now_ms = NOW_MS
        authenticator = Authenticator(config, lambda: self.now_ms)
        services = AuthServices(
            authenticator, Authorizer(config, SimpleNamespace(tenants={})), config, "test", lambda: self.now_ms
        )
        self.peer = Peer()
        self.session = AuthSession(self.peer, services)

    async def connect(self, own=None, **fields):
        proof = token(own or {"sub": "proxy"})
        command = pb.CommandConnect(client_version="t", auth_method_name="token", auth_data=proof, **fields)
        assert self.session.needs_proof(command)
        await self.session.begin(command)

    async def answer(self, claims):
        data = pb.AuthData(auth_method_name="token", auth_data=token(claims))
        await self.session.answer(pb.CommandAuthResponse(response=data))


def client(**claims):
    return {
        "original_principal": "user",
        "original_auth_method": "token",
        "original_auth_data": token({"sub": "user", **claims}).decode(),
    }


async def test_the_role_of_a_client_behind_a_proxy_is_the_proven_role():
    world = World()
    await world.connect(**client() | {"original_principal": "admin"})
    assert world.session.role == "user"


@pytest.mark.parametrize(
    "fields",
    [
        {"original_principal": "admin"},
        {"original_principal": "admin", "original_auth_method": "token"},
        {"original_principal": "admin", "original_auth_data": token({"sub": "admin"}).decode()},
        {"original_principal": "admin", "original_auth_method": "token", "original_auth_data": "x"},
    ],
)
async def test_a_client_that_is_only_named_is_refused_where_its_proof_is_checked(fields):
    world = World()
    with pytest.raises(AuthenticationError):
        await world.connect(**fields)


async def test_the_principal_of_web_sockets_has_no_proof():
    world = World()
    await world.connect(original_principal="__websocket_dummy_original_principle")
    assert world.session.role == "__websocket_dummy_original_principle"


async def test_a_named_client_is_accepted_where_its_proof_is_not_checked():
    world = World(verified=False)
    await world.connect(original_principal="user")
    assert world.session.role == "user"


async def test_the_expired_proof_of_a_client_behind_a_proxy_is_challenged():
    world = World()
    await world.connect(**client(exp=NOW_S + 5))
    world.peer.tick()
    assert world.peer.challenges == 0
    world.now_ms += 6000
    world.peer.tick()
    assert (world.peer.challenges, world.peer.closed) == (1, False)
    await world.answer({"sub": "user", "exp": NOW_S + 60})
    world.peer.tick()
    assert (world.peer.challenges, world.peer.closed) == (1, False)
    with pytest.raises(ConnectionFatalError):
        await world.answer({"sub": "proxy"})


async def test_a_client_with_an_empty_principal_cannot_renew_its_proof():
    """As in Apache Pulsar 4.2, where any named principal counts."""
    world = World(verified=False)
    await world.connect({"sub": "user", "exp": NOW_S + 5}, original_principal="")
    world.now_ms += 5000
    world.peer.tick()
    assert world.peer.closed and not world.peer.challenges


async def test_a_proxy_whose_proof_expires_ends_with_a_client_that_is_only_named():
    world = World(verified=False)
    await world.connect({"sub": "proxy", "exp": NOW_S + 5}, original_principal="user")
    world.now_ms += 6000
    world.peer.tick()
    assert (world.peer.challenges, world.peer.closed) == (0, True)


@pytest.mark.parametrize("answered", [b"admin:pw", b"other:pw", b"admin:wrong", b""])
async def test_an_answer_has_no_effect_where_proofs_are_not_renewed(answered):
    """Passwords and certificates are checked at CONNECT only, as in Apache Pulsar."""
    users = "admin:$apr1$abcdefgh$5VEbMkemELfbhC5ck.U.z1"
    world = World(authentication_providers=("basic",), basic_auth_conf="data:," + users)
    command = pb.CommandConnect(client_version="t", auth_method_name="basic", auth_data=b"admin:pw")
    assert world.session.needs_proof(command)
    await world.session.begin(command)
    data = pb.AuthData(auth_method_name="basic", auth_data=answered)
    await world.session.answer(pb.CommandAuthResponse(response=data))
    assert world.session.role == "admin"
    assert not world.peer.closed


async def test_an_empty_original_principal_counts_for_namespaces_alone():
    """As in Apache Pulsar 4.2: nothing is granted to the role without a name."""
    world = World(verified=False, super_user_roles=("admin",))
    await world.connect({"sub": "admin"}, original_principal="")
    world.session.require_topic(pb.BaseCommand.LOOKUP, TopicName.parse("persistent://t/n/x"))
    assert world.session.is_super_user
    with pytest.raises(AuthorizationError):
        world.session.require_namespace(pb.BaseCommand.GET_TOPICS_OF_NAMESPACE, "t/n")


@pytest.mark.parametrize("verified", [True, False])
@pytest.mark.parametrize("role", ["admin", "proxy"])
async def test_a_web_socket_proxy_has_its_own_rights_to_topics_and_none_to_namespaces(role, verified):
    """The principal needs no proxy role and no right, as in Apache Pulsar 4.2."""
    world = World(verified=verified, super_user_roles=("admin", "proxy"))
    await world.connect({"sub": role}, original_principal="__websocket_dummy_original_principle")
    world.session.require_topic(pb.BaseCommand.PRODUCER, TopicName.parse("persistent://t/n/x"))
    assert world.session.is_super_user
    assert not world.session.may_namespace(pb.BaseCommand.GET_TOPICS_OF_NAMESPACE, "t/n")
