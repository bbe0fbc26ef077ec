"""The rate of HTTP requests."""

import json

from magnetar.broker.admin.request_limits import MAX_VALUES, RequestRate
from magnetar.broker.settings import Settings
from tests.broker.admin_fakes import open_client


def test_a_second_may_come_at_once_and_then_as_it_refills():
    now = [0.0]
    rate = RequestRate(10, lambda: now[0])
    assert [rate.admits() for _ in range(11)] == [True] * 10 + [False]
    now[0] = 0.1
    assert [rate.admits(), rate.admits()] == [True, False]
    now[0] = 100.0
    assert [rate.admits() for _ in range(11)].count(True) == 10


def test_less_than_one_a_second():
    now = [0.0]
    rate = RequestRate(0.5, lambda: now[0])
    assert [rate.admits(), rate.admits()] == [True, False]
    now[0] = 2.0
    assert rate.admits()


async def test_requests_beyond_the_rate_are_answered_429():
    call = await open_client(Settings(http_requests_limit_enabled=True, http_requests_max_per_second=0.01))
    assert (await call("GET", "clusters")).status == 200
    for path in ("clusters", "/metrics", "nothing"):
        assert (await call("GET", path)).status == 429
    assert RequestRate.of(Settings(), lambda: 0.0) is None


async def test_a_body_of_a_hundred_thousand_values_is_refused():
    """A grant of 120,000 numbers held the event loop for 240 ms."""
    call = await open_client()
    grant = "namespaces/public/default/permissions/r"
    assert (await call("POST", grant, raw=b"[" + b"0," * MAX_VALUES + b"0]")).status == 413
    assert (await call("POST", grant, raw=b"[" + b"0," * (MAX_VALUES - 1) + b"0]")).status == 204
    text = json.dumps([",".join("x" * MAX_VALUES)])
    assert (await call("POST", grant, raw=text.encode())).status == 204, "commas in texts do not count"


async def test_a_request_with_hundreds_of_headers_needs_memory():
    """1,000 requests with 1,500 headers each, whose bodies never came, held more than 100 MiB beside the account."""
    call = await open_client()
    used = call.broker.memory.used_bytes
    many = {f"header-{number}": "" for number in range(200)}
    assert (await call("GET", "clusters", headers=many)).status == 200
    assert call.broker.memory.most_bytes - used > 64 * 1024
    assert call.broker.memory.used_bytes == used
    call.broker.memory.share("another").set("frame", 1 << 40)
    assert (await call("GET", "clusters", headers=many)).status == 429
    assert (await call("GET", "clusters", headers={"accept": "*/*"})).status == 200


async def test_a_form_of_the_console_needs_memory():
    """The refusal left the console as an error: 500, with a traceback in the log."""
    call = await open_client()
    form = {"raw": b"topic=t", "content_type": "application/x-www-form-urlencoded"}
    assert (await call("POST", "/ui/do/publish", **form)).status == 400
    call.broker.memory.share("another").set("frame", 1 << 40)
    assert (await call("POST", "/ui/do/publish", **form)).status == 429
    small = await open_client(Settings(http_max_request_size=3))
    assert (await small("POST", "/ui/do/publish", **form)).status == 413
