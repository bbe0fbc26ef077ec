"""Bodies that cannot be read are refused before missing namespaces and parameters count."""

from transcript import scenario

BODIES = (b"", b"null", b"{}", b"{x", b"[]", b"1", b'"x"', b'{"type": "STRING", "schema": ""}')


def answered(s, method, path, raw, kind="application/json"):
    """Note the status, and for a body of the right form the text of the refusal."""
    status, found = s.http(method, path, raw=raw, headers={"Content-Type": kind}, quietly=True)
    worded = status not in (415, 500) and raw in (b"", b"null", b"{}")
    reason = found.get("reason") if worded and isinstance(found, dict) else None
    s.note(f"{method} {path.replace(s.tag, '$')} {kind} {raw.decode()}", [status, reason and s.neutral(reason)])


@scenario
def schemas_in_missing_namespaces(s):
    for place in f"public/{s.tag}-none", f"{s.tag}-none/none":
        for route in "schema", "version", "compatibility":
            path = f"/admin/v2/schemas/{place}/t/{route}"
            for raw in BODIES:
                answered(s, "POST", path, raw)
            for raw in b"", b"{}", b"{x":
                answered(s, "POST", path, raw, "text/plain")


@scenario
def places_of_bookies_without_a_group(s):
    path = f"/admin/v2/bookies/racks-info/{s.tag}:3181"
    for raw in (*BODIES[:-1], b'{"rack": {}}', b'{"rack": "/a/b/c"}'):
        answered(s, "POST", path, raw)
    for raw in b"{}", b"{x":
        answered(s, "POST", path, raw, "text/plain")


@scenario
def metadata_of_packages(s):
    for kind in "function", "other":
        path = f"/admin/v3/packages/{kind}/public/default/p/v1/metadata"
        for raw in (*BODIES[:-1], b'{"createTime": "x"}', b'{"properties": {"a": 1}}', b'{"other": {}}'):
            answered(s, "PUT", path, raw)
        for raw in b"", b"{}", b"{x":
            answered(s, "PUT", path, raw, "text/plain")
