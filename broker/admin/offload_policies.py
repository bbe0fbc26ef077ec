"""Offload policies of namespaces and topics.

The broker stores and shows the policies for tools, without effect: it has no storage to offload to.
"""

from typing import Any, Final

import msgspec
from starlette.responses import Response

from magnetar.broker.admin.call import Call
from magnetar.broker.admin.responses import conflict, done, json_response
from magnetar.broker.admin.routes import NAMESPACE, TOPIC, RouteTable
from magnetar.broker.admin.topic_calls import policy_topic
from magnetar.broker.auth.table import NAMESPACE_ADMIN, SUPER, TOPIC_POLICY
from magnetar.broker.compat import rest_refusals
from magnetar.broker.compat.jackson_body import Int32, fitted
from magnetar.broker.compat.java_numbers import fits
from magnetar.broker.errors import RestError

routes = RouteTable()
Json = dict[str, object]
_S3: Final = ("s3", "aws-s3")
_GCS: Final = ("google-cloud-storage",)
_FILES: Final = ("filesystem",)
_DRIVERS: Final = (*_S3, *_GCS, *_FILES, "azureblob", "aliyun-oss")
_SHOWN_DRIVERS: Final = ",".join(_DRIVERS).replace("s3", "S3", 1)
_DEFAULTS: Final[Json] = {
    "offloadersDirectory": "./offloaders",
    "managedLedgerOffloadMaxThreads": 2,
    "managedLedgerOffloadReadThreads": 2,
    "managedLedgerOffloadPrefetchRounds": 1,
    "managedLedgerExtraConfigurations": {},
    "s3ManagedLedgerOffloadMaxBlockSizeInBytes": 64 * 1024 * 1024,
    "s3ManagedLedgerOffloadReadBufferSizeInBytes": 1024 * 1024,
    "s3ManagedLedgerOffloadRoleSessionName": "pulsar-s3-offload",
    "gcsManagedLedgerOffloadMaxBlockSizeInBytes": 128 * 1024 * 1024,
    "gcsManagedLedgerOffloadReadBufferSizeInBytes": 1024 * 1024,
}
_TEXTS: Final = (
    "offloadersDirectory",
    "managedLedgerOffloadDriver",
    *(f"s3ManagedLedgerOffload{x}" for x in ("Region", "Bucket", "ServiceEndpoint", "CredentialId")),
    *(f"s3ManagedLedgerOffload{x}" for x in ("CredentialSecret", "Role", "RoleSessionName")),
    *(f"gcsManagedLedgerOffload{x}" for x in ("Region", "Bucket", "ServiceAccountKeyFile")),
    *("fileSystemProfilePath", "fileSystemURI"),
    *(f"managedLedgerOffload{x}" for x in ("Bucket", "Region", "ServiceEndpoint")),
)
_WIDE_NUMBERS: Final = tuple(
    f"managedLedgerOffload{x}" for x in ("ThresholdInSeconds", "ThresholdInBytes", "DeletionLagInMillis")
)
_NUMBERS: Final = (
    *(f"managedLedgerOffload{x}" for x in ("MaxThreads", "ReadThreads", "PrefetchRounds")),
    *(f"{x}anagedLedgerOffloadMaxBlockSizeInBytes" for x in ("m", "s3M", "gcsM")),
    *(f"{x}anagedLedgerOffloadReadBufferSizeInBytes" for x in ("m", "s3M", "gcsM")),
)
_Body = msgspec.defstruct(
    "OffloadPolicies",
    [
        *((name, str | None, None) for name in _TEXTS),
        *((name, int | None, None) for name in _WIDE_NUMBERS),
        *((name, Int32 | None, None) for name in _NUMBERS),
        ("managedLedgerOffloadedReadPriority", str | None, None),
        ("managedLedgerExtraConfigurations", dict[str, str] | None, None),
    ],
)


def shown_offload(policies: Json | None) -> Json | None:
    """The policies with defaults, and with flags for the kind of their driver."""
    if policies is None:
        return None
    driver = str(policies.get("managedLedgerOffloadDriver", "")).lower()
    kinds = {"s3Driver": driver in _S3, "gcsDriver": driver in _GCS, "fileSystemDriver": driver in _FILES}
    return _DEFAULTS | policies | kinds


def _in_force(own: Json | None, namespace: Json | None) -> Json | None:
    """The policies of a topic filled up with those of its namespace; the defaults of own policies come first."""
    if own is None or namespace is None:
        return own or namespace
    extra: Json = {}
    for policies in (namespace, own):
        found = policies.get("managedLedgerExtraConfigurations")
        extra |= found if isinstance(found, dict) else {}
    return namespace | _DEFAULTS | own | {"managedLedgerExtraConfigurations": extra}


def with_value(policies: Json | None, name: str, value: int | None) -> Json:
    """The policies with one member changed; None removes it."""
    kept = {key: item for key, item in (policies or {}).items() if key != name}
    return kept if value is None else kept | {name: value}


async def _given(call: Call) -> Json:
    """The policies of the body; raises 412 for policies with which no driver could offload."""
    body = await call.body(dict[str, Any])
    if body is None:
        raise rest_refusals.OFFLOAD_POLICIES_MISSING.error()
    try:
        fit: Any = fitted(body, _Body)
    except msgspec.ValidationError as e:
        raise RestError(400, f"body: {e}") from e
    given = {name: value for name, value in msgspec.structs.asdict(fit).items() if value is not None}
    driver = str(given.get("managedLedgerOffloadDriver", "")).lower()
    if driver not in _DRIVERS:
        raise rest_refusals.OFFLOAD_DRIVER_UNKNOWN.error(drivers=_SHOWN_DRIVERS)
    prefix = "s3M" if driver in _S3 else "gcsM" if driver in _GCS else ""
    names = [f"{prefix}anagedLedgerOffloadBucket", "managedLedgerOffloadBucket"]
    if driver not in _FILES and not any(given.get(name) for name in names):
        raise rest_refusals.OFFLOAD_BUCKET_MISSING.error()
    return given


# --- namespaces -------------------------------------------------------------------------------------------------


@routes.get(NAMESPACE + "/scanOffloadedLedgers", SUPER)
async def scan_offloaded(call: Call) -> Response:
    raise RestError(500, f"there is no storage to which {call.namespace} offloads")


@routes.get(NAMESPACE + "/offloadPolicies", NAMESPACE_ADMIN)
async def offload_policies(call: Call) -> Response:
    return json_response(shown_offload(call.policies().offload_policies))


@routes.post(NAMESPACE + "/offloadPolicies", NAMESPACE_ADMIN)
async def set_offload_policies(call: Call) -> Response:
    given = await _given(call)
    call.policies(RestError(500, "the namespace does not exist"))
    return await _store(call, given)


@routes.delete(NAMESPACE + "/removeOffloadPolicies", NAMESPACE_ADMIN)
async def remove_offload_policies(call: Call) -> Response:
    if not call.namespaces.exists(call.namespace):
        raise conflict("The namespace does not exist")
    return await _store(call, None)


async def _store(call: Call, policies: Json | None) -> Response:
    await call.namespaces.update_namespace(
        call.namespace, lambda old: msgspec.structs.replace(old, offload_policies=policies)
    )
    return done()


def _declare(path: str, name: str, unset: int | None, status: int) -> None:
    async def read(call: Call) -> Response:
        found = (call.policies().offload_policies or {}).get(name)
        return json_response(unset if found is None else found)

    async def write(call: Call) -> Response:
        if await call.is_null():
            if not await call.raw_body():
                raise RestError(400, "The request entity cannot be empty.")
            value: int | None = 0
        else:
            value = await call.required_body(int)
            if not fits(value, 64):
                raise RestError(500, f"{value} is out of range of 64 bits")
        call.policies()
        return await change(call, value, status)

    async def remove(call: Call) -> Response:
        call.policies()
        return await change(call, None, 204)

    async def change(call: Call, value: int | None, answer: int) -> Response:
        await call.namespaces.update_namespace(
            call.namespace,
            lambda old: msgspec.structs.replace(old, offload_policies=with_value(old.offload_policies, name, value)),
        )
        return done(answer)

    routes.add("GET", f"{NAMESPACE}/{path}", NAMESPACE_ADMIN, read)
    routes.add("PUT", f"{NAMESPACE}/{path}", NAMESPACE_ADMIN, write)
    if unset is None:
        routes.add("DELETE", f"{NAMESPACE}/{path}", NAMESPACE_ADMIN, remove)


_declare("offloadThreshold", "managedLedgerOffloadThresholdInBytes", -1, 204)
_declare("offloadThresholdInSeconds", "managedLedgerOffloadThresholdInSeconds", -1, 200)
_declare("offloadDeletionLagMs", "managedLedgerOffloadDeletionLagInMillis", None, 204)


# --- topics -----------------------------------------------------------------------------------------------------


@routes.get(TOPIC + "/offloadPolicies", TOPIC_POLICY)
async def topic_offload_policies(call: Call) -> Response:
    name = policy_topic(call)
    found = call.namespaces.topic_policies(name).of_scope(all_clusters=call.flag("isGlobal")).offload_policies
    if call.flag("applied"):
        found = _in_force(found, call.policies().offload_policies)
    return json_response(shown_offload(found))


@routes.post(TOPIC + "/offloadPolicies", TOPIC_POLICY)
async def set_topic_offload_policies(call: Call) -> Response:
    await call.body(dict[str, Any])
    policy_topic(call)
    return await _store_of_topic(call, await _given(call))


@routes.delete(TOPIC + "/offloadPolicies", TOPIC_POLICY)
async def remove_topic_offload_policies(call: Call) -> Response:
    return await _store_of_topic(call, None)


async def _store_of_topic(call: Call, policies: Json | None) -> Response:
    name, all_clusters = policy_topic(call), call.flag("isGlobal")
    await call.namespaces.update_topic(
        name,
        lambda old: old.with_scope(
            msgspec.structs.replace(old.of_scope(all_clusters=all_clusters), offload_policies=policies),
            all_clusters=all_clusters,
        ),
    )
    return done()
