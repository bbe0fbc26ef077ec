"""One HTTP request for its handler: the client's identity, the resource, the body."""

from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

import msgspec

from magnetar.broker.admin.request_limits import MOST_BODY_BYTES, check_shape, check_values, read_body
from magnetar.broker.auth.authorizer import Target
from magnetar.broker.compat import java_numbers, rest_refusals
from magnetar.broker.compat.jackson_body import decode_body
from magnetar.broker.compat.java_texts import trimmed, url_decoded
from magnetar.broker.compat.jetty_http import is_json, is_text, media_type
from magnetar.broker.errors import NoSuchPathError, RestError
from magnetar.protocol.errors import InvalidTopicNameError
from magnetar.protocol.topic_name import TopicName

if TYPE_CHECKING:
    from starlette.requests import Request

    from magnetar.broker.admin.api import BrokerApi, PublishApi, SubscriptionsApi, TopicLogsApi, TopicsApi
    from magnetar.broker.admin.peer_calls import PeerCalls
    from magnetar.broker.admin.wide_answers import WideAnswers
    from magnetar.broker.auth.authorizer import Identity
    from magnetar.broker.auth.table import Need
    from magnetar.broker.policies.namespace_store import NamespaceStore
    from magnetar.broker.policies.records import Policies
    from magnetar.broker.policies.values import BundlesData
    from magnetar.broker.topics.lifecycle import TopicLifecycle

T = TypeVar("T")
_NOT_JSON = "the body must be application/json"
TAKEN_AS_JSON = ("application/json", "application/*", "*/*")
_PLAIN_KINDS: tuple[object, ...] = (int, bool, float, str)
NAME_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-=:._")


class Call:
    """A request whose caller is authenticated and authorized."""

    def __init__(
        self,
        request: "Request",
        api: "BrokerApi",
        identity: "Identity",
        wide: "WideAnswers",
        most_body: int | None = MOST_BODY_BYTES,
    ) -> None:
        self.request = request
        self.api = api
        self.identity = identity
        self.wide_answers = wide
        self.long_answers = wide.long
        self.walks, self.crowds = wide.walks, wide.crowds
        self._most_body = most_body
        self._raw_body: bytes | None = None

    def may(self, need: "Need", target: Target) -> bool:
        """Whether the caller also has this right, for resources that a handler finds while it serves the request."""
        return self.api.authorizer.allows(self.identity, need, target)

    @property
    def topics(self) -> "TopicsApi":
        return self.api.operations.directory

    @property
    def peers(self) -> "PeerCalls":
        """Calls to the brokers of the cluster. Precondition: the broker is a member of a cluster."""
        assert self.api.peers is not None, "a member of a cluster"
        return self.api.peers

    @property
    def lifecycle(self) -> "TopicLifecycle":
        return self.api.lifecycle

    @property
    def logs(self) -> "TopicLogsApi":
        return self.api.operations.logs

    @property
    def subscriptions(self) -> "SubscriptionsApi":
        return self.api.operations.subscriptions

    @property
    def publishing(self) -> "PublishApi":
        return self.api.operations.publishing

    @property
    def namespaces(self) -> "NamespaceStore":
        return self.api.namespaces

    # --- the path -------------------------------------------------------------------------------------------------

    def param(self, name: str) -> str:
        """A part of the path, decoded; raises 400 for bytes that are no UTF-8."""
        params = self.request.path_params
        if name == "subscription":
            return subscription_of(params)
        return decoded(params[name].replace("+", " ") if name == "topic" else params[name])

    def number(self, name: str, *, bits: int = 64) -> int:
        """A part of the path as a signed integer of `bits` bits, 0 where it is blank. Raises NoSuchPathError (404)."""
        text = self.param(name)
        return _integer(name, text, bits) if trimmed(text) else 0

    def check_namespace_name(self) -> None:
        """Raise 412 for an invalid name of the namespace in the path, as `namespace` does."""
        _ = self.namespace

    @property
    def namespace(self) -> str:
        """The namespace of the path. Raises 412 for an invalid name, unless the path names a topic: its name counts."""
        tenant, name = self.param("tenant"), self.param("namespace")
        if "topic" not in self.request.path_params and not (valid_name(tenant) and valid_name(name)):
            raise rest_refusals.NAMESPACE_NAME_INVALID.error()
        return f"{tenant}/{name}"

    def bundles(self) -> "BundlesData":
        """The bundles of the namespace in the path; raises 404."""
        return self.api.ownership.bundles(self.namespace) or self.policies().bundles

    def bundles_of(self, namespace: str) -> "BundlesData":
        """The bundles of another namespace; raises 404."""
        policies = self.namespaces.policies(namespace)
        if policies is None:
            raise rest_refusals.NAMESPACE_MISSING.error()
        return self.api.ownership.bundles(namespace) or policies.bundles

    def local_policies(self, missing: RestError | None = None) -> "Policies":
        """Like `policies`; raises ForeignNamespaceError for a namespace of other clusters."""
        found = self.policies(missing)
        self.namespaces.require_local(self.namespace)
        return found

    def policies(self, missing: RestError | None = None) -> "Policies":
        """Policies of the namespace in the path; raises `missing`, or 404 in the words of most routes."""
        found = self.namespaces.policies(self.namespace)
        if found is None:
            raise missing or rest_refusals.NAMESPACE_MISSING.error()
        return found

    def topic(self, *, anywhere: bool = False) -> TopicName:
        """The topic of the path; its namespace exists. Raises 412 for a bad name, 404, UnreadableRecordError, and
        ForeignNamespaceError for a namespace of other clusters, unless `anywhere`.
        """
        name = self.topic_name()
        if self.namespaces.policies(name.namespace) is None:
            raise rest_refusals.NAMESPACE_UNKNOWN.error()
        if not anywhere:
            self.namespaces.require_local(name.namespace)
        return name

    def new_topic(self) -> TopicName:
        """Like `topic`, for routes that create a topic: a missing namespace counts before a bad name."""
        if self.namespaces.policies(self.namespace) is None:
            raise rest_refusals.NAMESPACE_UNKNOWN.error()
        self.namespaces.require_local(self.namespace)
        return self.topic_name()

    def topic_name(self) -> TopicName:
        """Like `topic`, also in a missing namespace, for routes whose refusal names the missing topic."""
        name = topic_of(self.request.path_params)
        if name is None:
            raise rest_refusals.TOPIC_NAME_INVALID.error()
        return name

    # --- query and body -------------------------------------------------------------------------------------------

    def query(self, name: str, default: str = "") -> str:
        """The value of a query parameter; of a repeated parameter the first value counts."""
        given = self.request.query_params.getlist(name)
        return given[0] if given else default

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A query parameter that is true or false; any text but true is false."""
        return (self.query(name) or str(default)).lower() == "true"

    def query_number(self, name: str, *, bits: int = 64) -> int | None:
        value = self.query(name)
        return _integer(name, value, bits) if trimmed(value) else None

    async def body(self, kind: type[T]) -> T | None:
        """The JSON body as `kind`; None when there is none. Raises 400, 413 and, for another content type, 415, also
        without a body.

        Routes of topics also accept a number, a truth value or a text as text/plain.
        """
        raw = await self.raw_body()
        if not (self._content_type == "" or is_json(self._content_type) or self._is_plain(kind)):
            raise RestError(415, _NOT_JSON)
        if not raw.strip():
            return None
        await check_shape(raw)
        await check_values(raw)
        try:
            return decode_body(raw, kind)
        except msgspec.DecodeError as e:
            raise RestError(400, f"body: {e}") from e

    async def required_body(self, kind: type[T], reason: str = "a body is required") -> T:
        """Like `body`; raises 400 for an absent or null body."""
        value = await self.body(kind)
        if value is None:
            raise RestError(400, reason)
        return value

    async def is_null(self) -> bool:
        """Whether the body is null or empty."""
        return (await self.raw_body()).strip() in (b"", b"null")

    async def raw_body(self) -> bytes:
        if self._raw_body is None:
            self._raw_body = await read_body(self.request, self._most_body)
        raw = self._raw_body
        content_type = self._content_type
        # Routes of topics alone take text/plain and other kinds of JSON, and refuse other types without a body as well.
        if "domain" in self.request.path_params:
            fits = is_text(content_type) or is_json(content_type) or (not raw and content_type == "")
        else:
            fits = not raw or content_type in TAKEN_AS_JSON
        if not fits:
            raise RestError(415, _NOT_JSON)
        return raw

    def _is_plain(self, kind: object) -> bool:
        """Whether the body is a number, a truth value or a text of a type that need not be JSON."""
        return kind in _PLAIN_KINDS and is_text(self._content_type)

    @property
    def _content_type(self) -> str:
        return media_type(self.request.headers.get("content-type"))


def _integer(name: str, text: str, bits: int) -> int:
    try:
        return java_numbers.parsed(text, bits)
    except ValueError:
        raise NoSuchPathError(f"{name} is not a number") from None


def decoded(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise RestError(400, "the path is not UTF-8") from None


def subscription_of(params: dict[str, Any]) -> str:
    """The subscription that path parameters name. In the path of a topic the name is decoded twice, the second time
    like a form, since the admin client encodes it twice. Raises 400, and 500 when the second decoding fails.
    """
    if "topic" not in params:
        return decoded(params["subscription"].replace("+", " "))
    once = decoded(params["subscription"])
    try:
        return url_decoded(once)
    except ValueError:
        raise RestError(500, "the name of the subscription is not encoded twice") from None


def topic_of(params: dict[str, Any]) -> TopicName | None:
    """The topic that path parameters name; None for an invalid topic name."""
    # Apache Pulsar decodes names of topics like forms: a plus is a space.
    parts = [decoded(params["tenant"]), decoded(params["namespace"]), decoded(params["topic"].replace("+", " "))]
    try:
        return TopicName.parse(f"{params.get('domain', 'persistent')}://{'/'.join(parts)}")
    except InvalidTopicNameError:
        return None


def target_of(params: dict[str, Any]) -> Target:
    """The target that the authorization of a request checks, taken from its path."""
    tenant = decoded(params.get("tenant", ""))
    namespace = f"{tenant}/{decoded(params['namespace'])}" if "namespace" in params else ""
    name = topic_of(params) if "topic" in params else None
    subscription = subscription_of(params) if "subscription" in params else ""
    return Target.of_topic(name, subscription) if name else Target(tenant, namespace, subscription=subscription)


def valid_name(name: str) -> bool:
    """Whether the name is valid for a tenant, namespace or cluster (Pulsar NamedEntity)."""
    return bool(name) and set(name) <= NAME_LETTERS
