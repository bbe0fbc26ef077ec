"""Forms become calls of the REST API."""

import pytest

from magnetar.console.actions import ACTIONS, BadFormError, RestCall, page_of, topic_path

T = "persistent://public/default/a b/c"
PATH = "/admin/v2/persistent/public/default/a%20b%2Fc"
FORM = {
    "topic": T, "subscription": "s/1", "namespace": "public/default", "role": "app", "produce": "1", "number": "3",
    "seconds": "60", "where": "earliest", "payload": "hello", "key": "k", "value": "5", "partitions": "", "time": "",
}  # fmt: skip
CALLS = {
    "publish": ("POST", PATH.replace("/admin/v2/", "/topics/"), {"messages": [{"payload": "hello", "key": "k"}]}),
    "create-namespace": ("PUT", "/admin/v2/namespaces/public/default", {}),
    "create-topic": ("PUT", PATH, None),
    "create-subscription": ("PUT", f"{PATH}/subscription/s%2F1", {"ledgerId": -1, "entryId": -1}),
    "skip": ("POST", f"{PATH}/subscription/s%2F1/skip/3", None),
    "clear": ("POST", f"{PATH}/subscription/s%2F1/skip_all", None),
    "seek": ("POST", f"{PATH}/subscription/s%2F1/resetcursor", {"ledgerId": -1, "entryId": -1}),
    "expire": ("POST", f"{PATH}/subscription/s%2F1/expireMessages/60", None),
    "unsubscribe": ("DELETE", f"{PATH}/subscription/s%2F1", None),
    "unload": ("PUT", f"{PATH}/unload", None),
    "compact": ("PUT", f"{PATH}/compaction", None),
    "delete-topic": ("DELETE", PATH, None),
    "grant": ("POST", "/admin/v2/namespaces/public/default/permissions/app", ["produce"]),
    "revoke": ("DELETE", "/admin/v2/namespaces/public/default/permissions/app", None),
    "set": ("POST", "/admin/v2/brokers/configuration/k/5", None),
    "reset": ("DELETE", "/admin/v2/brokers/configuration/k", None),
}


def test_every_action_is_in_the_table_of_this_test():
    assert set(CALLS) == set(ACTIONS)


@pytest.mark.parametrize("name", ACTIONS)
def test_each_form_is_one_call_and_leads_back_to_a_page(name):
    action = ACTIONS[name]
    assert action.call(FORM) == RestCall(*CALLS[name])
    assert action.back(FORM).startswith("/ui/")


def test_other_forms_of_the_same_actions():
    assert ACTIONS["create-topic"].call(FORM | {"partitions": "4"}) == RestCall("PUT", f"{PATH}/partitions", 4)
    at = ACTIONS["seek"].call(FORM | {"where": "time", "time": "1970-01-01T00:01"})
    assert at.path.endswith("/resetcursor/60000")
    later = ACTIONS["publish"].call({"topic": T, "payload": "x", "delay_seconds": "2"})
    assert later.body == {"messages": [{"payload": "x", "deliverAfterMs": 2000}]}
    typed = ACTIONS["publish"].call({"topic": T, "payload": "{}", "schema_version": "3"})
    assert typed.body == {"messages": [{"payload": "{}"}], "schemaVersion": 3}


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("skip", {"number": "-1"}),
        ("skip", {"number": "9" * 30}),
        ("skip", {"number": "٣"}),
        ("seek", {"where": "time", "time": "yesterday"}),
        ("grant", {"produce": ""}),
        ("publish", {"topic": "persistent://a/b"}),
        ("publish", {"topic": "http://a/b/c"}),
        ("publish", {"schema_version": "-1"}),
        ("unsubscribe", {"subscription": " "}),
        ("revoke", {"namespace": "public"}),
    ],
)
def test_a_form_that_cannot_be_meant_is_refused(name, form):
    with pytest.raises(BadFormError):
        ACTIONS[name].call(FORM | form)


def test_names_cannot_leave_their_place_in_an_address():
    assert topic_path("persistent://t/n/../../../tenants") == "/admin/v2/persistent/t/n/..%2F..%2F..%2Ftenants"
    assert page_of("topic", name="a&b=c") == "/ui/topic?name=a%26b%3Dc"


def test_a_number_of_thousands_of_digits_is_refused():
    with pytest.raises(BadFormError):
        ACTIONS["skip"].call({"topic": "persistent://a/b/c", "subscription": "s", "number": "9" * 5000})
