"""HTTP lookup: which broker serves a topic."""

from typing import TypeVar

from starlette.responses import Response

from magnetar.broker.admin.call import Call, topic_of
from magnetar.broker.admin.elsewhere import redirect_to
from magnetar.broker.admin.responses import json_response, text
from magnetar.broker.admin.routes import RouteTable
from magnetar.broker.auth.table import NAMESPACE_USE, TOPIC_USE
from magnetar.broker.compat import rest_refusals
from magnetar.broker.errors import RestError, TooManyRequestsError
from magnetar.broker.ownership.ownership import AskBroker, BrokerAddresses, ServedAt
from magnetar.broker.policies.records import bundle_of
from magnetar.broker.policies.values import BundlesData
from magnetar.protocol.topic_name import TopicName

routes = RouteTable()
Addresses = TypeVar("Addresses")
LOOKUP = "/lookup/v2/topic/{domain:domain}/{tenant}/{namespace}/{topic}"


@routes.get(LOOKUP, TOPIC_USE)
async def lookup(call: Call) -> Response:
    """Answer the addresses of the topic's broker. The topic must exist, or a client that uses it must create it.

    ?listenerName= selects the addresses of another listener.
    """
    name = topic_of(call.request.path_params)
    if name is None:
        raise rest_refusals.TOPIC_NAME_OF_LOOKUP_INVALID.error()
    try:
        with call.api.lookups.slot(call.api.settings.max_concurrent_lookup_request):
            return await _answer(call, name)
    except TooManyRequestsError as e:
        raise rest_refusals.TOO_MANY_LOOKUPS.error() from e


async def _answer(call: Call, name: TopicName) -> Response:
    call.topic()
    if not _is_found(call, name):
        raise rest_refusals.TOPIC_OF_LOOKUP_UNKNOWN.error(topic=name)
    listener = call.query("listenerName") or call.request.headers.get("x-pulsar-listenername", "")
    found = await call.api.ownership.lookup(name, authoritative=call.flag("authoritative"))
    if isinstance(found, AskBroker):
        asked = _named(found.broker.of(listener), listener)
        return redirect_to(call, asked, authoritative=found.authoritative, listenerName=listener)
    if isinstance(found, ServedAt):
        return json_response(_of_owner(_named(found.owner.of(listener), listener)))
    urls = _named(call.api.listener_urls(listener), listener)
    owner = BrokerAddresses(urls.service_url, urls.service_url_tls, urls.web_url, urls.web_url_tls)
    return json_response(_of_owner(owner))


def _is_found(call: Call, name: TopicName) -> bool:
    """Whether a lookup finds the topic: a topic, each of its partitions, or a name that clients may create."""
    if call.topics.exists(name):
        return True
    count = call.topics.partition_count(name.base)
    if count is not None:
        return name.partition < count
    return not name.persistent or call.topics.may_be_created(name)


def _named(found: Addresses | None, listener: str) -> Addresses:
    """The addresses; raises 500 when the broker of the topic has no such listener."""
    if found is None:
        raise rest_refusals.LISTENER_UNKNOWN.error(listener=listener)
    return found


def _of_owner(owner: BrokerAddresses) -> dict[str, str]:
    """The addresses as in Apache Pulsar's answer; the basic addresses are "" when absent."""
    answer = {
        "brokerUrl": owner.service_url or "",
        "httpUrl": owner.web_url or "",
        "nativeUrl": owner.service_url or "",
        "brokerUrlSsl": owner.service_url_tls or "",
    }
    if owner.web_url_tls:
        answer["httpUrlTls"] = owner.web_url_tls
    if owner.service_url_tls:
        answer["brokerUrlTls"] = owner.service_url_tls
    return answer


@routes.get("/lookup/v2/topic/{kind}/{tenant}/{namespace}/{topic}", TOPIC_USE)
async def lookup_of_another_kind(call: Call) -> Response:
    raise RestError(500, f"there are no {call.param('kind')} topics")


@routes.get(LOOKUP + "/bundle", NAMESPACE_USE)
async def bundle(call: Call) -> Response:
    """Answer the bundle of the topic; the whole range for a namespace that does not exist."""
    name = topic_of(call.request.path_params)
    if name is None:
        raise rest_refusals.TOPIC_NAME_OF_LOOKUP_INVALID.error()
    known = call.namespaces.exists(name.namespace)
    return text(bundle_of(str(name), call.bundles() if known else BundlesData()))


@routes.get("/lookup/v2/topic/{kind}/{tenant}/{namespace}/{topic}/bundle", NAMESPACE_USE)
async def bundle_of_another_kind(call: Call) -> Response:
    return await lookup_of_another_kind(call)
