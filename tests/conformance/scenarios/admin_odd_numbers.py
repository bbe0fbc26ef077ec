"""Numbers of JSON that no number of Java holds, in bodies of policies: exponents, fractions, not-a-number, signs."""

from urllib.parse import quote

from harness.steps import namespace, rest
from transcript import scenario

NUMBERS = (
    b"1E400",
    b"NaN",
    b"1e2",
    b"1.0",
    b"1.9",
    b"-1.5",
    b"1e-3",
    b"+1",
    b"01",
    b"0x10",
    b"-0",
    b"1E+1",
    b"Infinity",
    b"-Infinity",
)


def tried(s, method, path, raw):
    status, answer = s.http(method, path, raw=raw, quietly=True)
    s.note(f"{method} {path.rpartition('/')[2]} {raw.decode()}", status)
    return status


for _path, _method in (
    ("messageTTL", "POST"),
    ("maxProducersPerTopic", "POST"),
    ("compactionThreshold", "PUT"),
    ("subscriptionExpirationTime", "POST"),
    ("offloadThreshold", "PUT"),
):

    def _run(s, path=_path, method=_method):
        base = f"/admin/v2/namespaces/{namespace(s)}/{path}"
        for number in NUMBERS:
            if tried(s, method, base, number) < 300:
                s.call("GET", base, keep=True)

    _run.__name__ = f"odd_numbers_of_a_namespace_in_{_path}"
    scenario(_run)

for _path in ("maxConsumers", "compactionThreshold", "maxMessageSize", "deduplicationSnapshotInterval"):

    def _run(s, path=_path):
        topic = s.topic()
        s.http("PUT", rest(topic), quietly=True)
        for number in NUMBERS:
            status = tried(s, "POST", rest(topic, "/" + path), number)
            s.note("set", status < 300)

    _run.__name__ = f"odd_numbers_of_a_topic_in_{_path}"
    scenario(_run)


@scenario
def odd_numbers_of_partitions(s):
    for i, number in enumerate(NUMBERS):
        path = f"/admin/v2/persistent/public/default/{s.tag}-{i}/partitions"
        if tried(s, "PUT", path, number) < 300:
            s.call("GET", path, keep=["partitions"])


@scenario
def odd_numbers_in_retention_and_rates(s):
    base = f"/admin/v2/namespaces/{namespace(s)}"
    for number in NUMBERS:
        text = number.decode()
        for path, body in (
            ("retention", f'{{"retentionTimeInMinutes": {text}, "retentionSizeInMB": 10}}'),
            ("publishRate", f'{{"publishThrottlingRateInMsg": {text}}}'),
            ("delayedDelivery", f'{{"active": true, "tickTime": {text}}}'),
        ):
            status, _ = s.http("POST", f"{base}/{path}", raw=body.encode(), quietly=True)
            s.note(f"{path} {text}", status)
            if status < 300:
                s.call("GET", f"{base}/{path}", keep=True)


@scenario
def odd_numbers_in_queries_and_paths(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    s.http("PUT", rest(topic, "/subscription/sub"), quietly=True)
    for text in (
        "1e2",
        "1.0",
        "+1",
        "01",
        "0x10",
        "-0",
        "NaN",
        "",
        "%20",
        "2147483648",
        "9223372036854775808",
        "\u0661",
    ):
        for method, path in (
            ("POST", f"/subscription/sub/skip/{text}"),
            ("POST", f"/subscription/sub/expireMessages/{text}"),
            ("POST", f"/subscription/sub/resetcursor/{text}"),
            ("GET", f"/subscription/sub/position/{text}"),
            ("GET", f"/messageid/{text}"),
            ("GET", f"/ledger/{text}/entry/0"),
            ("GET", f"/getMessageIdByIndex?index={text}"),
            ("GET", f"/examinemessage?messagePosition={text}"),
        ):
            status, _ = s.http(method, rest(topic, quote(path, safe="/?=%+&")), quietly=True)
            s.note(f"{method} {path}", status)
