"""Finding topics: LOOKUP, PARTITIONED_METADATA, GET_TOPICS_OF_NAMESPACE and the topic list watcher."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from magnetar.broker.compat import wire_refusals
from magnetar.broker.errors import (
    ConnectionFatalError,
    ForeignNamespaceError,
    InvalidTopicNameError,
    MetadataError,
    ServiceNotReadyError,
    TooManyRequestsError,
)
from magnetar.broker.handlers.long_lists import ListedClient, hash_in_slices, room_in_round, write_list
from magnetar.broker.handlers.request_turns import PATTERN_COMMANDS
from magnetar.broker.ownership.ownership import AskBroker, ServedAt
from magnetar.broker.slices import sorted_in_slices
from magnetar.broker.tasks import awaited
from magnetar.broker.topics.list_watcher import WatchingClient
from magnetar.broker.topics.patterns import (
    BeyondRe2Error,
    InvalidPatternError,
    TopicPattern,
    UnknownSchemeError,
    cost_of_refusal,
    without_scheme,
)
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import replies
from magnetar.protocol.errors import InvalidTopicNameError as BadName
from magnetar.protocol.topic_name import NamespaceName, TopicName

if TYPE_CHECKING:
    import asyncio
    import contextlib

    from magnetar.broker.advertised import AdvertisedUrls
    from magnetar.broker.handlers.client import ClientServices
    from magnetar.broker.ownership.ownership import BrokerAddresses
    from magnetar.broker.topics.list_watcher import TopicListWatcher

MAX_WATCHERS_PER_CONNECTION = 1000


class LookingClient(ListedClient, WatchingClient, Protocol):
    """A connection that asks for topics."""

    connection_id: int
    watchers: dict[int, TopicListWatcher]
    matching: asyncio.Lock
    """Held while a watcher of the client matches all names. Watchers of other clients may wait for these names: the
    holder never waits for the client.
    """

    @property
    def is_super_user(self) -> bool: ...

    def authorize_namespace(self, command_type: int, namespace: str) -> None:
        """Raise AuthorizationError unless the connection's role may use the command on the namespace."""
        ...

    def may_namespace(self, command_type: int, namespace: str) -> bool:
        """Whether the connection's role may still use the command on the namespace."""
        ...

    def require_memory(self, kept_bytes: int) -> None:
        """Count memory of a watcher that opens. Raises TooManyRequestsError when there is no room."""
        ...


def parse_topic(text: str) -> TopicName:
    """Parse the topic name of a command. Raises the BrokerError that answers the client."""
    try:
        return TopicName.parse(text)
    except BadName as e:
        raise wire_refusals.TOPIC_NAME_INVALID.error(problem=e) from e


def _slot(services: ClientServices) -> contextlib.AbstractContextManager[None]:
    """Count a request about topics, before the check of its rights (Apache Pulsar)."""
    return services.lookups.slot(services.settings.max_concurrent_lookup_request)


async def on_lookup(conn: LookingClient, command: pb.CommandLookupTopic) -> None:
    """Answer which broker serves a topic. The namespace must exist; the topic need not."""
    with conn.services.lookups.durations.timed():
        name = parse_topic(command.topic)
        with _slot(conn.services):
            await _answer_lookup(conn, command, name)


async def _answer_lookup(conn: LookingClient, command: pb.CommandLookupTopic, name: TopicName) -> None:
    services = conn.services
    may = partial(conn.may, pb.BaseCommand.LOOKUP, name)
    if (news := services.news.of_namespace(name.namespace, may)) is not None:
        await news
    conn.authorize(pb.BaseCommand.LOOKUP, name)
    listener = command.advertised_listener_name.strip() and command.advertised_listener_name
    services.topics.require_namespace(name)
    try:
        services.namespaces.require_local(name.namespace)
    except ForeignNamespaceError as refusal:
        conn.write(_lookup_at_peer(services, command, refusal))
        return
    services.namespaces.in_use.add(name.namespace)
    answer = await services.ownership.lookup(name, authoritative=command.authoritative)
    if isinstance(answer, AskBroker):
        asked = _urls(answer.broker.of(listener), listener)
        services.lookups.redirects += 1
        reply = replies.lookup_redirect(command.request_id, *asked, authoritative=answer.authoritative)
    else:
        found = answer.owner.of(listener) if isinstance(answer, ServedAt) else services.addresses.of(listener)
        alone = services.ownership.owned() is None
        reply = replies.lookup_connect(
            command.request_id, *_urls(found, listener), authoritative=True, proxy_through_service_url=alone
        )
    conn.write(reply)


def _lookup_at_peer(services: ClientServices, command: pb.CommandLookupTopic, refusal: ForeignNamespaceError) -> bytes:
    """The redirect to the cluster that replaces this cluster in the namespace. Raises the refusal where there is none,
    MetadataError for a cluster without an address.
    """
    known = services.namespaces.clusters.get(refusal.peer) if refusal.peer else None
    if known is None:
        raise refusal
    urls = known.broker_service_url or None, known.broker_service_url_tls or None
    if not any(urls):
        raise wire_refusals.PEER_WITHOUT_ADDRESS.error()
    return replies.lookup_redirect(command.request_id, *urls, authoritative=True)


def _urls(found: AdvertisedUrls | BrokerAddresses | None, listener: str) -> tuple[str | None, str | None]:
    """The two service URLs. Raises ServiceNotReadyError when the broker of the topic has no such listener."""
    if found is None:
        raise wire_refusals.LISTENER_UNKNOWN.error(listener=listener)
    return found.service_url, found.service_url_tls


async def on_partitioned_metadata(conn: LookingClient, command: pb.CommandPartitionedTopicMetadata) -> None:
    """Answer how many partitions a topic has; create a missing partitioned topic where auto creation allows it."""
    services = conn.services
    name = parse_topic(command.topic)
    with _slot(services):
        may_create = command.metadata_auto_creation_enabled
        may = partial(conn.may, pb.BaseCommand.PARTITIONED_METADATA, name)
        if (news := services.news.of_topic(name, may_create=may_create, may=may)) is not None:
            await news
        if not conn.is_super_user:  # before the right, as in Apache Pulsar: clients' tests expect it
            services.topics.require_tenant(name)
        conn.authorize(pb.BaseCommand.PARTITIONED_METADATA, name)
        if may_create:
            _refuse_partitions_elsewhere(services, name)
        partitions = await services.topics.partitions(name, auto_create=may_create)
    conn.write(replies.partitioned_metadata(command.request_id, partitions))


def _refuse_partitions_elsewhere(services: ClientServices, name: TopicName) -> None:
    """Raise ForeignNamespaceError in a namespace of other clusters, unless a cluster among them replaces this cluster:
    the lookup sends clients there.
    """
    try:
        services.namespaces.require_local(name.namespace)
    except ForeignNamespaceError as refusal:
        if refusal.peer is None:
            raise


def refuse_foreign(services: ClientServices, name: TopicName) -> None:
    """Raise ServiceNotReadyError for a producer or consumer in a namespace of other clusters: the client looks up."""
    if services.namespaces.is_foreign(name.namespace):
        raise ServiceNotReadyError(f"other clusters serve namespace {name.namespace}: look the topic up")


def read_schema_ahead(
    services: ClientServices, name: TopicName, command: pb.CommandProducer | pb.CommandSubscribe
) -> None:
    """Begin to read the schemas of a topic that is not loaded, for a client that brings a schema."""
    if command.HasField("schema") and str(name) not in services.topics.loaded:
        awaited(services.schemas.read_ahead(name), "schema.ahead")


def _namespace(text: str) -> str:
    try:
        NamespaceName.parse(text)
    except BadName as e:
        raise ConnectionFatalError(f"no namespace: {text!r}") from e  # as Apache Pulsar 4.2
    return text  # with slashes at its end, it names a namespace that does not exist


async def on_get_topics_of_namespace(conn: LookingClient, command: pb.CommandGetTopicsOfNamespace) -> None:
    """Answer the topics of a namespace that match the pattern; no names when the client's hash equals theirs."""
    namespace = _namespace(command.namespace)
    with _slot(conn.services):
        may = partial(conn.may_namespace, pb.BaseCommand.GET_TOPICS_OF_NAMESPACE, namespace)
        if (news := conn.services.news.of_namespace(namespace, may)) is not None:
            await news
        conn.authorize_namespace(pb.BaseCommand.GET_TOPICS_OF_NAMESPACE, namespace)
        async with conn.lists:  # memory holds one list at a time for a client that requests many
            await _answer_topics(conn, command, namespace)


async def _answer_topics(conn: LookingClient, command: pb.CommandGetTopicsOfNamespace, namespace: str) -> None:
    services = conn.services
    names: list[str] = []
    if command.mode != pb.CommandGetTopicsOfNamespace.PERSISTENT and not services.namespaces.exists(namespace):
        raise wire_refusals.NAMESPACE_TO_LIST_MISSING.error()
    if command.mode in (pb.CommandGetTopicsOfNamespace.PERSISTENT, pb.CommandGetTopicsOfNamespace.ALL):
        names += services.topics.catalog.listed_names(namespace)
    if command.mode in (pb.CommandGetTopicsOfNamespace.NON_PERSISTENT, pb.CommandGetTopicsOfNamespace.ALL):
        names += await sorted_in_slices(services.topics.non_persistent_names(namespace))
    pattern = await _pattern_to_filter_by(conn, command)
    if pattern is not None:
        names = await pattern.filter_in_slices(names, room_in_round(conn))
    digest = await hash_in_slices(names, conn)
    changed = not (command.HasField("topics_hash") and command.topics_hash == digest)
    reply = replies.topics_of_namespace(
        command.request_id, topics_hash=digest, filtered=pattern is not None, changed=changed
    )
    await write_list(conn, reply, names if changed else [])


async def _compiled(conn: LookingClient, text: str) -> TopicPattern:
    """Compile a pattern, in a round of the event loop that has room: the compilation may take some milliseconds. Raises
    InvalidPatternError.
    """
    turns = conn.services.request_turns
    await turns.room(conn.loop, PATTERN_COMMANDS)
    try:
        pattern = TopicPattern(text)
    except InvalidPatternError as e:
        turns.count(conn.loop, cost_of_refusal(e))
        raise
    turns.count(conn.loop, pattern.cost)
    return pattern


async def _pattern_to_filter_by(conn: LookingClient, command: pb.CommandGetTopicsOfNamespace) -> TopicPattern | None:
    """The client's pattern; None when the client filters by itself: it sent no pattern, or this broker does not
    evaluate the pattern. Raises MetadataError for an invalid pattern.
    """
    settings = conn.services.settings
    if (
        not command.HasField("topics_pattern")
        or not settings.enable_broker_side_subscription_pattern_evaluation
        or len(command.topics_pattern) > settings.subscription_pattern_max_length
    ):
        return None
    try:
        return await _compiled(conn, command.topics_pattern)
    except BeyondRe2Error:
        return None
    except InvalidPatternError as e:
        raise MetadataError(str(e)) from e


async def on_watch_topic_list(conn: LookingClient, command: pb.CommandWatchTopicList) -> None:
    """Start to send the client the topics that match a pattern, and each later creation or deletion of such a topic."""
    if conn.closed:  # the end of the connection has closed the watchers already
        return
    namespace = _namespace(command.namespace)
    with _slot(conn.services):
        await _watch(conn, command, namespace)


async def _watch(conn: LookingClient, command: pb.CommandWatchTopicList, namespace: str) -> None:
    services = conn.services
    settings = services.settings
    may = partial(conn.may_namespace, pb.BaseCommand.WATCH_TOPIC_LIST, namespace)
    if (news := services.news.of_namespace(namespace, may)) is not None:
        await news
    conn.authorize_namespace(pb.BaseCommand.WATCH_TOPIC_LIST, namespace)
    if not settings.enable_broker_side_subscription_pattern_evaluation:
        raise wire_refusals.PATTERNS_NOT_EVALUATED.error()
    try:
        text = without_scheme(command.topics_pattern)
        if len(text) > settings.subscription_pattern_max_length:
            raise wire_refusals.PATTERN_TOO_LONG.error(most=settings.subscription_pattern_max_length)
        pattern = await _compiled(conn, command.topics_pattern)
    except UnknownSchemeError as e:
        raise wire_refusals.PATTERN_OF_UNKNOWN_SCHEME.error() from e
    except InvalidPatternError as e:
        raise InvalidTopicNameError(str(e)) from e
    if conn.closed:
        return
    watcher_id = command.watcher_id
    watcher = conn.watchers.get(watcher_id)
    if watcher is None:
        if len(conn.watchers) >= MAX_WATCHERS_PER_CONNECTION:
            raise TooManyRequestsError(f"A connection has at most {MAX_WATCHERS_PER_CONNECTION} topic list watchers")
        conn.require_memory(pattern.kept_bytes)
        watcher = conn.watchers[watcher_id] = services.topic_watchers.open(
            conn, watcher_id, namespace, pattern, room_in_round(conn), conn.matching
        )
    elif watcher.namespace != namespace:  # the list is that of the present watcher
        namespace = watcher.namespace
        conn.authorize_namespace(pb.BaseCommand.WATCH_TOPIC_LIST, namespace)
    await services.topic_watchers.loaded(watcher, namespace)
    async with conn.lists:
        with watcher.listing():
            is_new = not watcher.started
            try:
                names, digest = await services.topic_watchers.first_list(watcher, namespace)
                same = command.HasField("topics_hash") and command.topics_hash == digest
                reply = replies.watch_topic_list_success(command.request_id, watcher_id, digest)
                await write_list(conn, reply, [] if same else names)
            except TooManyRequestsError:
                if is_new and conn.watchers.get(watcher_id) is watcher:
                    watcher.stop()
                    del conn.watchers[watcher_id]
                raise


def on_watch_topic_list_close(conn: LookingClient, command: pb.CommandWatchTopicListClose) -> None:
    watcher = conn.watchers.pop(command.watcher_id, None)
    if watcher is not None:
        watcher.stop()
    conn.write(replies.success(command.request_id))
