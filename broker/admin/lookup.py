"""HTTP lookup: which broker serves a topic. Here always this one."""

import zlib

from starlette.responses import Response

from magnetar.broker.admin.call import Call
from magnetar.broker.admin.responses import RestError, json_response, text
from magnetar.broker.admin.routes import RouteTable
from magnetar.broker.auth.table import TOPIC_USE
from magnetar.broker.policy_records import bundle_ranges

routes = RouteTable()
LOOKUP = "/lookup/v2/topic/{domain:domain}/{tenant}/{namespace}/{topic}"


@routes.get(LOOKUP, TOPIC_USE)
async def lookup(call: Call) -> Response:
    """Addresses for clients, whether the topic exists or not; its namespace must. ?listenerName= chooses others."""
    call.topic()
    urls = call.api.urls
    listener = call.query("listenerName") or call.request.headers.get("x-pulsar-listenername", "")
    if listener:
        named = call.api.listener_urls(listener)
        if named is None:
            raise RestError(412, f"the broker does not have a listener {listener}")
        urls = named
    answer = {
        "brokerUrl": urls.service_url,
        "httpUrl": urls.web_url,
        "nativeUrl": urls.service_url,
        "brokerUrlSsl": urls.service_url_tls,
    }
    if urls.web_url_tls:
        answer["httpUrlTls"] = urls.web_url_tls
    if urls.service_url_tls:
        answer["brokerUrlTls"] = urls.service_url_tls
    return json_response(answer)


@routes.get(LOOKUP + "/bundle", TOPIC_USE)
async def bundle(call: Call) -> Response:
    """The bundle of the topic: the range its name's CRC-32 falls into."""
    name = call.topic()
    policies = call.policies()
    point = zlib.crc32(str(name).encode())
    found = [each for each in bundle_ranges(policies.bundles) if int(each.partition("_")[0], 16) <= point]
    return text(found[-1] if found else "0x00000000_0xffffffff")
