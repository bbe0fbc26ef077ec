"""Null as isolation policy and as value of a property, forms of bodies before clusters, partitions of partitions."""

from urllib.error import HTTPError
from urllib.request import Request, urlopen

from harness.steps import namespace
from transcript import scenario

BODIES = (b"", b"null", b"[]", b"{}", b"{x", b"1", b'"x"')
NULLS = (b'{"a": null}', b'{"a": null, "b": "1"}')
METADATA = "application/vnd.partitioned-topic-metadata+json"


def tried(s, method, path, raw=b"", *, body=None):
    """Note the status, and the text of a refusal of 404, 409 or 412."""
    status, answer = s.http(method, path, body, raw=raw or None, quietly=True)
    reason = answer.get("reason") if status in (404, 409, 412) and isinstance(answer, dict) else None
    s.note(f"{method} {path.replace(s.tag, '$')} {raw.decode()}", [status, reason and s.neutral(reason)])


@scenario
def bodies_of_isolation_policies_and_failure_domains(s):
    for cluster in "standalone", f"{s.tag}-none":
        for raw in BODIES:
            tried(s, "POST", f"/admin/v2/clusters/{cluster}/namespaceIsolationPolicies/{s.tag}", raw)
            if raw not in (b"", b"null", b"{}"):
                tried(s, "POST", f"/admin/v2/clusters/{cluster}/failureDomains/{s.tag}", raw)


@scenario
def properties_with_the_value_null(s):
    """No step follows a null that reached a managed ledger: Apache Pulsar does not answer to its next change."""
    ns = namespace(s)
    base = f"/admin/v2/persistent/{ns}/"
    s.lookup(f"persistent://{ns}/t")
    for i, raw in enumerate(NULLS):
        tried(s, "PUT", f"{base}none/properties", raw)
        tried(s, "PUT", f"{base}none/subscription/s/properties", raw)
        for name in f"t{i}", f"u{i}":
            s.http("PUT", base + name, quietly=True)
            s.http("PUT", f"{base}{name}/subscription/s", "earliest", quietly=True)
        tried(s, "PUT", f"{base}t{i}/subscription/none/properties", raw)
        tried(s, "PUT", f"{base}t{i}/subscription/s/properties", raw)
        tried(s, "PUT", f"{base}u{i}/properties", raw)
        tried(s, "PUT", f"{base}new{i}", raw)
        s.http("PUT", f"{base}p{i}/partitions", 2, quietly=True)
        s.http("PUT", f"{base}p{i}/subscription/s", "earliest", quietly=True)
        tried(s, "PUT", f"{base}p{i}/properties", raw)
        s.call("GET", f"{base}p{i}/properties", keep=True)
        tried(s, "PUT", f"{base}p{i}/subscription/s/properties", raw)
        s.call("GET", f"{base}p{i}/subscription/s/properties", keep=True)
        tried(s, "PUT", f"{base}p{i}-partition-0/properties", raw)
        form = b'{"partitions": 2, "properties": ' + raw + b"}"
        path = f"{base}q{i}/partitions"
        asked = Request(s.http_base + path, form, {"Content-Type": METADATA}, method="PUT")
        try:
            with urlopen(asked, timeout=30) as answer:
                s.note("created with properties", answer.status)
        except HTTPError as refused:
            s.note("not created", refused.code)
        if i:  # without any property Apache Pulsar shows an empty object
            s.call("GET", f"{base}q{i}/properties", keep=True)


@scenario
def partitions_of_partitions(s):
    for domain in "persistent", "non-persistent":
        base = f"/admin/v2/{domain}/{namespace(s, domain)}"
        s.http("PUT", f"{base}/a/partitions", 2, quietly=True)
        for name in (
            *("a-partition-0-partition-0", "a-partition-0-partition-5", "b-partition-0-partition-0"),
            *("a-partition-7-partition-0", "a-partition-x-partition-0", "a-partition-0-partition--1"),
            *("b-partition--1-partition-0", "a-partition-0-partition-00", "b-partition-00-partition-0"),
        ):
            for method, more, body in (
                *(("PUT", "", None), ("GET", "/stats", None)),
                *(("PUT", "/subscription/s", "earliest"), ("DELETE", "", None)),
            ):
                tried(s, method, f"{base}/{name}{more}", body=body)
        s.call("GET", base, keep=True)
