"""The broker itself: health, readiness, version, settings; the routes of tools for a cluster of one broker."""

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from starlette.responses import Response

from magnetar import __version__
from magnetar.broker.admin.call import Call
from magnetar.broker.admin.elsewhere import redirect_to
from magnetar.broker.admin.responses import done, json_response, precondition, text
from magnetar.broker.admin.routes import ADMIN, RouteTable
from magnetar.broker.auth.table import OPEN, PROBE, SUPER
from magnetar.broker.compat import rest_refusals
from magnetar.broker.compat.unused_settings import unused_settings
from magnetar.broker.errors import BrokerError, NoSuchPathError, RestError
from magnetar.broker.ownership.ownership import BrokerAddresses
from magnetar.broker.policies.records import bundle_finder
from magnetar.broker.setting_areas.dynamic import LOAD_MANAGERS
from magnetar.broker.setting_areas.refused import REFUSED
from magnetar.broker.setting_suggestions import names_secret
from magnetar.broker.settings import SETTINGS
from magnetar.broker.slices import sliced
from magnetar.broker.tasks import awaited
from magnetar.storage.errors import StorageError

routes = RouteTable()
BROKERS = ADMIN + "/brokers"
LOOK_WITHIN_S: Final = 5.0
_looks: dict[str, asyncio.Task[bool]] = {}
"""The look for each status file that is under way."""


@routes.get(BROKERS + "/health", SUPER)
async def health(call: Call) -> Response:
    """`ok` when the broker serves requests and its storage takes writes."""
    asked = call.query("brokerId")
    if asked and asked != call.api.urls.broker_id:
        return await _at_broker(call, asked)
    if not call.api.is_ready():
        raise RestError(503, "the broker is starting or stopping")
    try:
        await call.api.check_health()
    except (BrokerError, StorageError, OSError) as e:
        raise RestError(500, f"unhealthy: {e}") from e
    return text("ok")


@routes.get(BROKERS + "/ready", PROBE)
async def ready(call: Call) -> Response:
    if not call.api.is_ready():
        raise RestError(503, "the broker is starting or stopping")
    return text("ok")


@routes.get("/status", PROBE)
async def status(call: Call) -> Response:
    """Answer general probes, for example of Kubernetes: 200 or 503."""
    return await ready(call)


@routes.get("/status.html", PROBE)
async def status_page(call: Call) -> Response:
    """Answer load balancers as Apache Pulsar does: OK, or 404 while the file of `statusFilePath` is away."""
    await ready(call)
    if not await _in_rotation(call.api.settings.status_file_path):
        raise NoSuchPathError("the status file does not exist")
    return Response("OK", headers={"Content-Type": "text/plain"})


async def _in_rotation(status_file: str) -> bool:
    """Look for the file in a thread, one for all probes: a file system may hang. Raises 503 when there is no answer."""
    if not status_file:
        return True
    look = _looks.get(status_file)
    if look is None:
        look = _looks[status_file] = awaited(asyncio.to_thread(Path(status_file).exists), "status.file")
        look.add_done_callback(lambda _look: _looks.pop(status_file))
    try:
        return await asyncio.wait_for(asyncio.shield(look), LOOK_WITHIN_S)
    except TimeoutError:
        raise RestError(503, "the file system of statusFilePath does not answer") from None


@routes.get(BROKERS + "/version", OPEN)
async def version(_call: Call) -> Response:
    return text(__version__)


@routes.get(BROKERS, SUPER)
async def list_brokers(call: Call) -> Response:
    return json_response(await call.api.ownership.brokers() or [call.api.urls.broker_id])


@routes.get(BROKERS + "/leaderBroker", SUPER)
async def leader(call: Call) -> Response:
    urls = call.api.urls
    found = await call.api.ownership.leader()
    broker_id, address = found or (urls.broker_id, urls.web_url or urls.web_url_tls)
    return json_response({"serviceUrl": address, "brokerId": broker_id})


@routes.get(BROKERS + "/configuration", SUPER)
async def dynamic_settings(call: Call) -> Response:
    """Names of settings that can change while the broker runs."""
    return json_response(call.api.dynamic_settings.names)


@routes.get(BROKERS + "/configuration/values", SUPER)
async def changed_settings(call: Call) -> Response:
    return json_response(_shown(call.api.dynamic_settings.values))


_OPTIONALS: Final = (
    *("brokerServicePort", "brokerServicePortTls", "webServicePort", "webServicePortTls"),
    "loadBalancerOverrideBrokerNicSpeedGbps",
)
"""Settings that may be absent in Apache Pulsar."""


@routes.get(BROKERS + "/configuration/runtime", SUPER)
async def runtime_settings(call: Call) -> Response:
    """Show all settings in force, and changed settings without a meaning here; secrets are hidden unless empty.
    Settings of Apache Pulsar without an effect here have its defaults.
    """
    in_force = {key: getattr(call.api.settings, row.attribute) for key, row in SETTINGS.items()}
    values = {
        key: "(hidden)" if SETTINGS[key].secret and value else _as_text(key, value) for key, value in in_force.items()
    }
    unused = unused_settings(os.cpu_count() or 1, standalone=call.api.peers is None)
    return json_response(unused | _shown(call.api.dynamic_settings.values) | values)


def _shown(values: Mapping[str, str]) -> dict[str, str]:
    """Changed settings without their secrets (such as brokerClientAuthenticationParameters)."""
    return {key: "(hidden)" if names_secret(key) else value for key, value in values.items()}


def _as_text(key: str, value: Any) -> str:
    """The value as Apache Pulsar writes its type."""
    if key in _OPTIONALS:
        absent = value is None or (isinstance(value, float) and not value)  # a port of 0 is a free port
        return "Optional.empty" if absent else f"Optional[{value}]"
    if key == "advertisedListeners":
        return ",".join(value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"[{', '.join(value)}]" if isinstance(value, tuple) else "" if value is None else str(value)


@routes.post(BROKERS + "/configuration/{key}/{value}", SUPER)
async def change_setting(call: Call) -> Response:
    """The broker accepts any text except an invalid load manager; an invalid value has no effect. A protection that
    cannot be kept is refused, as it is at start.
    """
    key = call.param("key")
    if key not in call.api.dynamic_settings.names:
        raise rest_refusals.SETTING_NOT_DYNAMIC.error()
    if key == "loadManagerClassName" and call.param("value") not in LOAD_MANAGERS:
        raise rest_refusals.SETTING_VALUE_INVALID.error()
    refusal = REFUSED.get(key)
    if refusal is not None and not refusal.allows(call.param("value")):
        raise precondition(f"{key} has no effect here: {refusal.remedy}")
    await call.api.dynamic_settings.change(key, call.param("value"))
    return done(200)


@routes.delete(BROKERS + "/configuration/{key}", SUPER)
async def reset_setting(call: Call) -> Response:
    key = call.param("key")
    if key not in call.api.dynamic_settings.names:
        raise rest_refusals.SETTING_NOT_DELETABLE.error()
    await call.api.dynamic_settings.remove(key)
    return done(200)


@routes.get(BROKERS + "/internal-configuration", SUPER)
async def internal_configuration(call: Call) -> Response:
    stores = ("metadataStoreUrl", "configurationMetadataStoreUrl", "zookeeperServers", "configurationStoreServers")
    settings = call.api.settings
    if call.api.peers is None:
        return json_response(dict.fromkeys(stores, "embedded") | {"ledgersRootPath": "/ledgers"})
    shared = dict.fromkeys(stores, settings.metadata_store_url)
    bookies = settings.bookkeeper_metadata_service_uri
    return json_response(shared | {"ledgersRootPath": "/ledgers", "bookkeeperMetadataServiceUri": bookies})


@routes.get(BROKERS + "/backlog-quota-check", SUPER)
async def quota_check(_call: Call) -> Response:
    """The broker checks quotas by a timer; a request for a further check succeeds and has no effect."""
    return Response(status_code=204)


@routes.get(BROKERS + "/{cluster}", SUPER)
async def brokers_of_cluster(call: Call) -> Response:
    return json_response(await call.api.ownership.brokers() or [call.api.urls.broker_id])


async def _at_broker(call: Call, broker: str) -> Response:
    """The redirect to the broker with that id. Raises 404 when no such broker is registered."""
    if broker not in (await call.api.ownership.brokers() or ()):
        raise rest_refusals.BROKER_UNKNOWN.error(broker=broker)
    return redirect_to(call, _at_web_port(call, broker))


def _at_web_port(call: Call, broker: str) -> BrokerAddresses:
    """The web address of the broker with that id. Assumes TLS on its port as on this broker's: the brokers of a cluster
    have the same settings.
    """
    if call.api.urls.web_url:
        return BrokerAddresses(web_url=f"http://{broker}")
    return BrokerAddresses(web_url_tls=f"https://{broker}")


@routes.get(BROKERS + "/{cluster}/{broker}/ownedNamespaces", SUPER)
async def owned_namespaces(call: Call) -> Response:
    """Show the broker's bundles in a cluster; outside a cluster every bundle that has a loaded topic."""
    if call.param("broker") != call.api.urls.broker_id:
        return await _at_broker(call, call.param("broker"))
    state = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
    if (owned := call.api.ownership.owned()) is not None:
        return json_response(dict.fromkeys(owned, state))
    found: set[str] = set()
    finders: dict[str, Callable[[str], str]] = {}
    async for part in sliced(call.topics.loaded_names()):
        for name in part:
            if name.namespace not in finders:
                finders[name.namespace] = bundle_finder(call.bundles_of(name.namespace))
            found.add(f"{name.namespace}/{finders[name.namespace](str(name))}")
    return json_response(dict.fromkeys(sorted(found), state))
