"""The commands against a broker process: the commands of docs/cli.md succeed, and wrong commands fail with their exit
codes.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import time

import pulsar
import pytest

from tests.blackbox.clients import quiet_client

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(sys.executable).parent


@pytest.fixture
def run(new_broker, tmp_path):
    broker = new_broker()
    environ = os.environ | {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "HOME": str(tmp_path),
        "MAGNETAR_URL": broker.url,
        "MAGNETAR_ADMIN_URL": broker.http,
    }

    def shell(text, *, code=0):
        done = subprocess.run(
            ["bash", "-eu", "-c", text], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, f"{text}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout if code == 0 else done.stderr

    return shell


@pytest.mark.timeout(240)  # forty processes, one after the other
def test_the_page_can_be_typed(run, tmp_path):
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs/cli.md").read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 5
    said = [run(text) for text in blocks]
    for line in ("first order", "second order", "third order", "fourth order"):
        assert said[0].count(line) >= 2, f"{line} was tailed and consumed"
    exported = [json.loads(line) for line in (tmp_path / "orders.jsonl").read_text().splitlines()]
    assert sorted(each["payload"] for each in exported) == [
        "first order",
        "fourth order",
        "second order",
        "third order",
    ]
    assert (tmp_path / "orders.parquet").read_bytes()[:4] == b"PAR1"
    assert "public/default" in said[0]
    assert {each["check"]: each["verdict"] for each in json.loads(said[2])}["service port"] == "ok"
    assert (tmp_path / "magnetar.fish").read_text()
    assert '"retentionTimeInMinutes" : 1440' in said[4]
    assert said[4].count("----- got message -----") == 5


def test_lag_is_watched_until_it_is_interrupted(run, tmp_path):
    run("magnetar topics create watched && magnetar subscriptions create watched billing")
    watching = "timeout -s INT 8 magnetar lag watched --watch --every 1s --json > lag.jsonl || echo $? > code"
    run(f"({watching}) & until test -s lag.jsonl; do sleep 0.1; done; magnetar produce watched one two; wait")
    backlogs = [json.loads(line)[0]["backlog"] for line in (tmp_path / "lag.jsonl").read_text().splitlines()]
    assert backlogs == sorted(backlogs)
    assert (backlogs[0], backlogs[-1]) == (0, 2)
    assert int((tmp_path / "code").read_text()) == 124, "timeout ended it, no failure did"


def test_failures_have_their_exit_codes_and_name_the_remedy(run):
    assert "not found" in run("magnetar topics show nosuch", code=66)
    assert "Did you mean 'list'" in run("magnetar topics lst", code=2)
    assert "magnetar context" in run("magnetar context use nosuch", code=66)
    assert "is the broker up" in run(
        "magnetar --version >/dev/null; magnetar topics list --admin-url http://127.0.0.1:1", code=69
    )
    assert "Reason: " in run("magnetar admin topics stats nosuch", code=1)
    run("magnetar produce t a && magnetar consume t -s s --from earliest -n 1 && magnetar produce t b c")
    run("magnetar lag --above 1", code=1)
    run("magnetar lag --above 2")
    assert "no such variable" in run("magnetar topics list --token env:NOSUCH_TOKEN", code=78)
    assert "is no namespace" in run("magnetar topics list public", code=2)


def test_client_encrypts_as_the_official_client_does(run, tmp_path):
    run(
        "openssl genrsa -out private.pem 2048 2>/dev/null; openssl rsa -in private.pem -pubout -out public.pem 2>/dev/null"
    )
    run("magnetar client produce -m secret -ekn billing -ekv file://$PWD/public.pem ours")
    client = quiet_client(run("echo $MAGNETAR_URL").strip())
    keys = pulsar.CryptoKeyReader(str(tmp_path / "public.pem"), str(tmp_path / "private.pem"))
    consumer = client.subscribe("ours", "s", initial_position=pulsar.InitialPosition.Earliest, crypto_key_reader=keys)
    assert consumer.receive(20_000).data() == b"secret"
    producer = client.create_producer(
        "theirs", encryption_key="billing", crypto_key_reader=keys, compression_type=pulsar.CompressionType.ZSTD
    )
    for number in range(3):
        producer.send_async(b"order %d" % number, None)
    producer.flush()
    client.close()
    said = run("magnetar client consume -s s -p Earliest -n 3 -ekv $PWD/private.pem theirs")
    assert re.findall("content:(.*)", said) == ["order 0", "order 1", "order 2"]
    refused = run("magnetar client consume -s t -p Earliest theirs", code=1)
    assert "the payload is encrypted; see --crypto-failure-action" in refused
    assert "content:" in run("magnetar client consume -s u -p Earliest -ca consume theirs")
    run("magnetar client produce -m plain theirs")
    assert "content:plain" in run("magnetar client consume -s v -p Earliest -ca discard theirs")


def test_client_takes_patterns_times_and_keys_with_values(run):
    run("magnetar client produce -m one orders-1; magnetar topics create orders-2 --partitions 2")
    run("magnetar client produce -m two orders-2; magnetar client produce -m other deliveries")
    said = run("magnetar client consume --regex -s s -p Earliest -n 2 'public/default/orders-.*'")
    assert set(re.findall("content:(.*)", said)) == {"one", "two"}
    assert "is no regular expression" in run("magnetar client consume --regex -s s '('", code=1)

    run("magnetar client produce -m before times")
    middle = time.time_ns() // 1_000_000 + 1
    run("sleep 0.01; magnetar client produce -m after times")
    for subscription, mode in (("kept", "Durable"), ("not-kept", "NonDurable")):
        said = run(f"magnetar client consume -s {subscription} -m {mode} -p Earliest -stp {middle} times")
        assert re.findall("content:(.*)", said) == ["after"], mode
    said = run(f"magnetar client consume -s until -p Earliest -n 0 -etp {middle} times")
    assert re.findall("content:(.*)", said) == ["before"]
    assert "should larger" in run(f"magnetar client consume -s x -stp {middle} -etp 1 times", code=2)

    run("magnetar client produce -m v1 -kvet inline -kvk k1 -vs string pairs")
    assert '"kv.encoding.type": "INLINE"' in run("magnetar admin schemas get pairs")
    assert "k1\x00\x00\x00\x02v1" in run("magnetar client consume -s s -p Earliest pairs")


def test_tail_reads_and_makes_no_topic(run):
    """A misspelt name made a topic, and the command waited for its messages."""
    for name in ("ordres", "ordres-partition-0"):
        assert "ordres" in run(f"magnetar tail {name} --timeout 5s", code=66)
    assert "ordres" not in run("magnetar topics list; magnetar admin topics list public/default")
    run("magnetar topics create orders; magnetar topics create parts --partitions 2; magnetar produce parts one two")
    assert run("magnetar tail orders --timeout 1s") == ""
    assert run("magnetar tail parts --from earliest --count 2 | sort") == "one\ntwo\n"


def test_a_tail_ends_with_the_reader_of_its_output(run):
    """The command waited for another message, at which its write would fail."""
    run("magnetar topics create orders; magnetar produce orders one")
    assert run("timeout 120 magnetar tail orders --from earliest | head -1; echo ${PIPESTATUS[0]}") == "one\n141\n"


def test_a_topic_whose_partitions_are_all_deleted_exists_and_is_empty(run, tmp_path):
    """A broker deletes partitions that are inactive, and keeps the partitioned topic."""
    run("magnetar topics create parts --partitions 2; magnetar produce parts one two")
    run("for n in 0 1; do magnetar admin topics delete parts-partition-$n; done")
    run("magnetar export parts parts.jsonl")
    assert (tmp_path / "parts.jsonl").read_text() == ""
    assert run("magnetar admin topics list public/default").strip() == "", "an export makes no partitions"
    seen = "until magnetar admin topics stats parts-partition-0 > /dev/null 2>&1; do sleep 0.1; done"
    assert (
        run(f"({seen}; magnetar produce parts three > sent) & magnetar tail parts --from earliest --count 1")
        == "three\n"
    )


def test_the_client_names_a_remedy_for_each_address_that_leads_nowhere(run):
    for url in ("pulsar://127.0.0.1:1", "pulsar://no.such.host.invalid:6650", "${MAGNETAR_ADMIN_URL/http/pulsar}"):
        said = run(f"magnetar client --url {url} produce -m x t", code=1)
        assert "Give --url, or a context" in said


def test_tail_waits_for_the_first_producer_of_a_topic_that_is_not_persistent(run):
    """Such a topic exists as long as it has clients, and only clients that came before get a message."""
    name = "non-persistent://public/default/rates"
    seen = f"for _ in {{1..40}}; do magnetar admin topics stats {name} > /dev/null 2>&1 && break; done"
    produced = f"({seen}; magnetar produce {name} one > /dev/null)"
    assert run(f"{produced} & magnetar tail {name} --count 1 --timeout 30s; wait") == "one\n"
