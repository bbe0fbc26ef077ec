"""Opening of sessions: a client that leaves during its authentication leaves nothing behind."""

import asyncio
from types import SimpleNamespace

from magnetar.broker.auth.provider import Authenticated
from magnetar.broker.memory_account import MemoryAccount, MemoryLimits
from magnetar.broker.network.connection_resources import ConnectionResources
from magnetar.broker.network.connections import Connections
from magnetar.broker.network.publish_gate import PublishBudget
from magnetar.broker.network.read_buffer import SharedReadBuffer
from magnetar.broker.settings import Settings
from magnetar.broker.tasks import TaskSet
from magnetar.broker.websocket.web_socket_service import WebSocketService
from magnetar.storage.read_turns import ReadTurns
from tests.broker.websocket.test_web_socket import HEAD
from tests.twins.fake_connection import FakeTransport
from tests.waiting import until

PATH = "/ws/v2/producer/persistent/a/b/c"


class SlowAuthenticator:
    """Checks passwords until the test sets `proof`."""

    enabled = True

    def __init__(self):
        self.proof = asyncio.get_running_loop().create_future()

    async def authenticate_http(self, *_credentials):
        return await self.proof


async def test_a_client_that_leaves_during_its_authentication_gets_no_connection():
    auth = SlowAuthenticator()
    rules = SimpleNamespace(valid_identity=lambda *_, **__: True, allows=lambda *_: True)
    services = SimpleNamespace(auth=SimpleNamespace(authenticator=auth, authorizer=rules, now_ms=lambda: 1))
    memory = MemoryAccount(MemoryLimits.of_total(1 << 30, 1 << 20))
    resources = ConnectionResources(
        settings=Settings(),
        max_frame_bytes=1 << 20,
        connections=Connections(0, 0),
        memory=memory,
        publish_budget=PublishBudget(0),
        shared_buffer=SharedReadBuffer(),
        tasks=TaskSet(),
        turns=ReadTurns(),
    )
    gone = []
    service = WebSocketService(resources, services)
    transport = FakeTransport()
    socket = service.serve(transport, HEAD, PATH, "", {"authorization": "Basic eDp4"}, None, lambda: gone.append(1))
    await asyncio.sleep(0)
    transport.closing = True
    socket.connection_lost(None)
    auth.proof.set_result(Authenticated("user", "basic"))
    await until(lambda: not len(resources.tasks))
    assert (len(service), len(gone)) == (0, 1)
    assert (len(resources.connections), memory.used_bytes) == (0, 0)
