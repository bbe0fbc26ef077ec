"""THE authorization table: the right that every binary command and every HTTP route needs.

A row is a `Need`: which action on which kind of resource. Commands have their rows here; a route cannot be declared
without one (`admin/routes.py`). `check_complete` is called before the broker listens: a command without a row stops
the start.

    resource    status of a refusal over HTTP, and the clients that have the right
    NOTHING     -      every client; where authentication is on, the client must prove its role, or have the
                       anonymous role, except for probes
    CLUSTER     401    clusters, brokers, the list of tenants: super users
    TENANT      401    a tenant: its administrators (super users always)
    NAMESPACE   403    a namespace, its policies and its list of topics: tenant administrators, and grants where the
                       action allows them
    TOPIC       401    a topic and its subscriptions: grants on topic or namespace, tenant administrators; 403 for its
                       policies, its partitions and its deletion
"""

import enum
from typing import Final, NamedTuple

from magnetar.protocol import pulsar_api_pb2 as pb


class Resource(enum.Enum):
    """The resource of a right."""

    NOTHING = "nothing"
    CLUSTER = "cluster"
    TENANT = "tenant"
    NAMESPACE = "namespace"
    TOPIC = "topic"

    @property
    def denied_status(self) -> int:
        """The HTTP status of a refusal, as Apache Pulsar has it."""
        return 403 if self is Resource.NAMESPACE else 401


class Action(enum.Enum):
    """The action of a role."""

    PROBE = "open to all, without credentials too"
    ANYTHING = "open to every proven role"
    ADMINISTER = "administer"  # tenant administrators; of clusters and for creating tenants: super users
    PRODUCE = "produce"
    CONSUME = "consume"
    USE = "produce or consume"
    PACKAGES = "packages"


class Need(NamedTuple):
    """One row: the action on the resource; `refusal` is the HTTP status of a refusal where it differs from the status
    of the resource.
    """

    resource: Resource
    action: Action
    refusal: int = 0

    @property
    def is_open(self) -> bool:
        """Whether no right is needed."""
        return self.resource is Resource.NOTHING

    @property
    def denied_status(self) -> int:
        """The HTTP status for a client without this right."""
        return self.refusal or self.resource.denied_status


PROBE: Final = Need(Resource.NOTHING, Action.PROBE)
OPEN: Final = Need(Resource.NOTHING, Action.ANYTHING)
SUPER: Final = Need(Resource.CLUSTER, Action.ADMINISTER)
TENANT_ADMIN: Final = Need(Resource.TENANT, Action.ADMINISTER)
NAMESPACE_ADMIN: Final = Need(Resource.NAMESPACE, Action.ADMINISTER)
NAMESPACE_USE: Final = Need(Resource.NAMESPACE, Action.USE)
NAMESPACE_CONSUME: Final = Need(Resource.NAMESPACE, Action.CONSUME)
NAMESPACE_PACKAGES: Final = Need(Resource.NAMESPACE, Action.PACKAGES, 401)
TOPIC_ADMIN: Final = Need(Resource.TOPIC, Action.ADMINISTER)
TOPIC_POLICY: Final = Need(Resource.TOPIC, Action.ADMINISTER, 403)
TOPIC_USE: Final = Need(Resource.TOPIC, Action.USE)
TOPIC_PRODUCE: Final = Need(Resource.TOPIC, Action.PRODUCE)
TOPIC_CONSUME: Final = Need(Resource.TOPIC, Action.CONSUME)

_T: Final = pb.BaseCommand
_OPENED_BEFORE: Final = OPEN  # the producer, consumer or watcher was opened with its right
_REFUSED_TO_ALL: Final = OPEN  # every client gets a typed error

COMMANDS: Final[dict[int, Need]] = {
    _T.CONNECT: OPEN,
    _T.AUTH_RESPONSE: OPEN,
    _T.PING: OPEN,
    _T.PONG: OPEN,
    _T.LOOKUP: TOPIC_USE,
    _T.PARTITIONED_METADATA: TOPIC_USE,
    _T.PRODUCER: TOPIC_PRODUCE,  # with an initial subscription TOPIC_CONSUME too
    _T.SUBSCRIBE: TOPIC_CONSUME,
    _T.GET_TOPICS_OF_NAMESPACE: NAMESPACE_USE,
    _T.WATCH_TOPIC_LIST: NAMESPACE_USE,
    _T.GET_SCHEMA: TOPIC_USE,
    _T.GET_OR_CREATE_SCHEMA: TOPIC_USE,  # with a schema the topic does not have TOPIC_PRODUCE too
    _T.SEND: _OPENED_BEFORE,
    _T.CLOSE_PRODUCER: _OPENED_BEFORE,
    _T.FLOW: _OPENED_BEFORE,
    _T.ACK: _OPENED_BEFORE,
    _T.REDELIVER_UNACKNOWLEDGED_MESSAGES: _OPENED_BEFORE,
    _T.UNSUBSCRIBE: _OPENED_BEFORE,
    _T.SEEK: _OPENED_BEFORE,
    _T.GET_LAST_MESSAGE_ID: _OPENED_BEFORE,
    _T.CONSUMER_STATS: _OPENED_BEFORE,
    _T.CLOSE_CONSUMER: _OPENED_BEFORE,
    _T.WATCH_TOPIC_LIST_CLOSE: _OPENED_BEFORE,
    _T.TC_CLIENT_CONNECT_REQUEST: _REFUSED_TO_ALL,
    _T.NEW_TXN: _REFUSED_TO_ALL,
    _T.ADD_PARTITION_TO_TXN: _REFUSED_TO_ALL,
    _T.ADD_SUBSCRIPTION_TO_TXN: _REFUSED_TO_ALL,
    _T.END_TXN: _REFUSED_TO_ALL,
    _T.END_TXN_ON_PARTITION: _REFUSED_TO_ALL,
    _T.END_TXN_ON_SUBSCRIPTION: _REFUSED_TO_ALL,
}


def check_complete(served: "set[int] | frozenset[int]") -> None:
    """Raise RuntimeError unless each of the served commands has a row."""
    missing = sorted(pb.BaseCommand.Type.Name(command) for command in served - COMMANDS.keys())
    if missing:
        raise RuntimeError(f"no row in the authorization table for {', '.join(missing)}")
