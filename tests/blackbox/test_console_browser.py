"""The console in a real browser (headless Chromium): scripts and styles work under the strict policy, figures live."""

import os
import pathlib
import shutil
import urllib.parse

import pytest

from tests.blackbox.clients import quiet_client
from tests.waiting import wait_for

webdriver = pytest.importorskip("selenium.webdriver")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="Chromium is missing: install the packages chromium and chromium-driver"
)
TOPIC = "persistent://public/default/orders"
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--window-size=1280,1000"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
PICTURES = os.environ.get("MAGNETAR_SCREENSHOTS")
"""The folder for the pictures of the documentation; None: the tests write no pictures."""


@pytest.fixture
def browser(tmp_path):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_page_load_timeout(60)
    yield driver
    driver.quit()


def picture(browser, name):
    if PICTURES:
        browser.save_screenshot(str(pathlib.Path(PICTURES) / f"{name}.png"))


def text(browser, css):
    """The text of an element, found and read in one step, because the page replaces its live parts."""
    return browser.execute_script("return document.querySelector(arguments[0]).innerText", css)


@pytest.mark.timeout(180)
def test_figures_change_while_the_page_is_open_and_nothing_breaks_the_policy(new_broker, browser):
    broker = new_broker(managedLedgerMaxEntriesPerLedger=40, managedLedgerMinLedgerRolloverTimeMinutes=0)
    client = quiet_client(broker.url)
    billing = client.subscribe(TOPIC, "billing")
    audit = client.subscribe(TOPIC, "audit")
    producer = client.create_producer(TOPIC, batching_enabled=False)
    for number in range(150):
        producer.send_async(b'{"order": %d, "city": "Bern"}' % number, None)
    producer.flush()
    for _ in range(100):
        billing.acknowledge(billing.receive(20_000))
    for _ in range(30):
        audit.acknowledge(audit.receive(20_000))
    browser.get(f"{broker.http}/ui/")
    assert TOPIC in browser.page_source
    assert browser.execute_script("return getComputedStyle(document.querySelector('header')).display") == "flex"
    picture(browser, "topics")

    browser.get(f"{broker.http}/ui/topic?" + urllib.parse.urlencode({"name": TOPIC}))
    before = text(browser, "[data-live=figures]")
    picture(browser, "topic")
    producer.send(b"x")
    wait_for(lambda: text(browser, "[data-live=figures]") != before, 60, "an update of the page by itself", every=0.1)
    assert len(browser.find_elements("css selector", "svg.log rect")) >= 2

    address = urllib.parse.urlencode({"topic": TOPIC, "name": "billing", "peek": 3})
    browser.get(f"{broker.http}/ui/subscription?{address}")
    assert '{"order": 100, "city": "Bern"}' in text(browser, "article pre")
    picture(browser, "subscription")
    browser.find_element("css selector", "form[action='/ui/do/clear'] button").click()
    browser.switch_to.alert.accept()
    wait_for(lambda: "The backlog is cleared." in browser.page_source, 60, "the answer to the form", every=0.1)
    severe = [
        line for line in browser.get_log("browser") if line["level"] == "SEVERE" and "favicon" not in line["message"]
    ]
    assert not severe
    client.close()
