"""The steps of a new user with the README alone, each with the time since the begin; the programs are the README's.

Runs in a bare container (newcomer.sh). Ends with an error when a step contradicts the README.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.request

HOME = pathlib.Path.home()
CHECKOUT = HOME / "magnetar"
README = (CHECKOUT / "README.md").read_text()
WITHIN_S = 300
BEGUN = time.monotonic()


def say(text):
    seconds = int(time.monotonic() - BEGUN)
    print(f"[{seconds // 60}:{seconds % 60:02d}] {text}", flush=True)


def typed(command, where=HOME):
    """Run a line of shell; returns its output."""
    say(f"$ {command}")
    done = subprocess.run(["bash", "-c", command], cwd=where, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{command}: {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def broker():
    """`make run`, until its ready line; the process of make."""
    say("$ make run")
    errors = HOME / "make-run.err"
    with errors.open("w") as file:
        process = subprocess.Popen(["make", "run"], cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=file, text=True)
    said = []
    for line in process.stdout:
        if line.startswith("magnetar ready"):
            say(line.strip())
            return process
        said.append(line)
    code = process.wait()
    sys.exit(f"the broker did not start: {code}\n{''.join(said)[-3000:]}{errors.read_text()[-3000:]}")


def program(name, text):
    (HOME / name).write_text(text)
    said = typed(f"venv/bin/python {name} 2>/dev/null")
    lines = [line for line in said.splitlines() if not re.match(r"\d{4}-\d\d-\d\d .* INFO", line)]
    for line in lines:
        say(f"    {line}")
    return lines


def main():
    receiving = re.search(r"```python\n(import pulsar\n\nclient = .*?)```", README, re.DOTALL)[1]
    testing = re.search(r"```python\n(import pulsar\n\n\ndef test_.*?)```", README, re.DOTALL)[1]
    typed("apt-get update -q && apt-get install -y -q --no-install-recommends make")
    process = broker()
    typed("python3 -m venv venv && venv/bin/pip install -q pulsar-client")
    assert program("receive.py", receiving) == ["the receipt means: on the disk"]
    say("MESSAGE RECEIVED")

    typed("venv/bin/pip install -q ./magnetar pytest")
    (HOME / "test_orders.py").write_text(testing)
    passed = typed("venv/bin/pytest -q test_orders.py").strip().splitlines()[-1]
    assert "1 passed" in passed, passed
    say(f"    {passed}")
    say("TEST PASSED")

    say("http://127.0.0.1:8080/ui/ in a browser")
    with urllib.request.urlopen("http://127.0.0.1:8080/ui/", timeout=20) as answer:
        page = answer.read().decode()
    assert "persistent://public/default/hello" in page or ">hello<" in page or "hello" in page
    say(f"    {re.search('<title>(.*?)</title>', page)[1]}: the topic hello is listed")
    say("DASHBOARD SEEN")

    unacknowledged = receiving.replace("consumer.acknowledge(message)\n", "").replace(
        "the receipt means: on the disk", "not acknowledged"
    )
    assert program("send.py", unacknowledged) == ["not acknowledged"]
    pid = int((CHECKOUT / "data/LOCK").read_text())
    say(f"$ kill -9 {pid}")
    os.kill(pid, signal.SIGKILL)
    process.wait()
    process = broker()
    again = receiving.replace('producer = client.create_producer("hello")\n', "").replace(
        'producer.send(b"the receipt means: on the disk")\n', ""
    )
    assert program("again.py", again) == ["not acknowledged"]
    say("CRASH SURVIVED")
    seconds = time.monotonic() - BEGUN
    os.kill(int((CHECKOUT / "data/LOCK").read_text()), signal.SIGTERM)
    process.wait()
    assert seconds < WITHIN_S, seconds


if __name__ == "__main__":
    main()
