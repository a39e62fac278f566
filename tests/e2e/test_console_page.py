"""The console's page in Chromium, against a console without a cluster that answers with whatever is worst to show.

One browser and one fake console for the file. A test gets a page of its own, which fails it for any error on the
browser's console, any request to another host and any breach of the content security policy.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.fake_console import FakeConsole
from support.fake_console_cluster import BEYOND, HOSTILE, HOSTILE_NAME, FakeCluster
from support.oidc_console import Served
from support.oidc_provider import OidcProvider
from support.waiting import wait_until

from suiro.client import Client
from suiro.console.records import OutgoingRecord, produce
from suiro.console.web import ConsoleSettings
from suiro.console.web.api import overview
from suiro.console.web.serving import ConsoleServer
from suiro.node import InProcessNode

sync_api = pytest.importorskip("playwright.sync_api")
expect = sync_api.expect
expect.set_options(timeout=20_000)

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no Chromium here; `apt-get install chromium` brings it"
)
TIMEOUT_MS = 20_000
REFRESHED_MS = 6_000
"""Within this time each page is loaded again."""
DEAD_LETTERS = (
    "#/dead-letters/flights.dead-letters?origin=flights&at=0%3A3&reason=value+is+not+JSON%3A+expected+a+value+at+byte+N"
)
PAGES = {
    "overview": "#/overview",
    "topics": "#/topics?internal=1",
    "topic": "#/topics/flights",
    "configs": "#/topics/flights/configs",
    "records": "#/topics/flights/records?at=0:4990",
    "groups": "#/groups",
    "group": "#/groups/carrier-delays",
    "schemas": "#/schemas",
    "schema": "#/schemas/orders-value?old=1",
    "dead-letters": DEAD_LETTERS,
    "views": "#/views",
    "view": "#/views/0/carrier_delays",
    "differences": "#/views/0/carrier_delays/differences",
    "decisions": "#/views/0/carrier_delays/history",
    "connectors": "#/connectors",
    "security": "#/security",
    "applications": "#/applications",
    "application": "#/applications/0?node=with-weather",
    "store": "#/applications/0/stores/delays",
}
"""Of each kind of page one."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def console() -> Iterator[FakeConsole]:
    running = FakeConsole(FakeCluster(topics=200, groups=20))
    yield running
    running.stop()


Open = Callable[..., Any]


@pytest.fixture
def open_page(browser: Any, console: FakeConsole) -> Iterator[Open]:
    """`open_page(hash, url=, theme=, sent_to=)`: what was wrong with a page fails the test at its end. `sent_to`: where
    its users log in."""
    wrong: list[str] = []
    contexts = []

    def opened(
        target: str = "#/overview",
        *,
        url: str | None = None,
        theme: str = "light",
        sent_to: str | None = None,
    ) -> Any:
        base = url or console.url
        context = browser.new_context(color_scheme=theme, viewport={"width": 1360, "height": 860})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(TIMEOUT_MS)
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on("console", lambda said: _said(said))
        page.on("request", lambda request: _asked(request, base))
        page.on("dialog", lambda dialog: wrong.append(f"a dialog of the browser: {dialog.message}"))

        def _said(said: Any) -> None:
            # A connection that ended, or an answer of 404, 500 or 503, is what some tests are about.
            expected = re.search(r"net::ERR_(CONNECTION|INCOMPLETE)|status of (404|500|503)", said.text) or (
                sent_to is not None and re.search("status of 40[01]", said.text)
            )
            if said.type in ("error", "warning") and not expected:
                wrong.append(f"{said.type}: {said.text}")

        def _asked(request: Any, base: str) -> None:
            if not request.url.startswith((base, sent_to or base, "data:")):
                wrong.append(f"asked another host: {request.url}")

        page.goto(f"{base}/{target}")
        return page

    yield opened
    titles = [page.title() for context in contexts for page in context.pages]
    for context in contexts:
        context.close()
    assert wrong == []
    assert console.wrong == []
    assert not [title for title in titles if title.startswith("owned")]


def _asked_last(console: FakeConsole, path: str) -> Any:
    found = [body for asked, body in console.cluster.asked if asked == path]
    assert found, f"{path} was not asked for; {[asked for asked, _ in console.cluster.asked]}"
    return found[-1]


def _hold(page: Any, path: str) -> list[Any]:
    """The next question for it waits, in the list."""
    held: list[Any] = []
    first = iter([held.append])
    page.route(f"**/api/v1/{path}", lambda route: next(first, lambda later: later.continue_())(route))
    return held


# -- every page --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_has_a_serious_fault_of_accessibility(open_page: Open, theme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.base")
    page = open_page(theme=theme)
    page.set_viewport_size({"width": 1200, "height": 560})
    page.evaluate(axe.AXE_SCRIPT)  # once: the pages are one document
    faults = {}
    for name, target in PAGES.items():
        options: dict[str, Any] = {"resultTypes": ["violations"], "iframes": False}
        is_dark_too = name in ("overview", "application")
        if theme == "dark" and not is_dark_too:
            continue  # the themes differ in colours only, and those have a test of their own
        if theme == "light" and name != "records":  # it takes longer than all other rules together
            options["rules"] = {"color-contrast": {"enabled": False}}
        page.evaluate("hash => { location.hash = hash }", target)
        _settled(page)
        found = page.evaluate("async options => (await axe.run(document, options)).violations", options)
        serious = [
            f"{one['id']}: {one['nodes'][0]['html'][:200]} {one['nodes'][0].get('failureSummary', '')[:300]}"
            for one in found
            if one["impact"] in ("serious", "critical")
        ]
        if serious:
            faults[name] = serious
    assert faults == {}


def _settled(page: Any) -> None:
    """The page of the URL is there, and nothing of it is loading."""
    page.wait_for_function(
        "() => document.querySelector('main h1') !== null && document.querySelector('main .loading') === null"
    )


# -- topics ------------------------------------------------------------------------------------------------------


def test_ten_thousand_topics_filter_sort_and_scroll(open_page: Open, request: pytest.FixtureRequest) -> None:
    many = FakeConsole(FakeCluster(topics=10_000, groups=2_000))
    request.addfinalizer(many.stop)
    page = open_page("#/topics", url=many.url)
    rows = page.locator("tbody tr[data-at]")
    expect(page.get_by_text("10,008 of 10,009")).to_be_visible()
    assert rows.count() < 100, "only the rows in sight are drawn"
    page.locator(".virtual").evaluate("box => { box.scrollTop = box.scrollHeight }")
    expect(page.get_by_role("link", name="tenant-099.events-09999")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("EVENTS-0777")
    expect(rows).to_have_count(10)
    assert "filter=EVENTS-0777" in page.url
    page.get_by_role("button", name="Records").click()
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("Records")
    expect(rows.first).to_contain_text("tenant-077.events-07779")
    rows.first.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("tenant-077.events-07779")
    page.go_back()
    expect(rows).to_have_count(10)


def test_live_changes_come_by_themselves(open_page: Open, console: FakeConsole) -> None:
    page = open_page("#/topics?filter=flights")
    row = page.locator("tbody tr[data-at]", has_text="flights").first
    expect(row).to_contain_text("336,776")
    wait_until(lambda: console.listeners > 0, what="the page listens")
    changed = {**console.cluster.named_topics()[0], "records": 336_777, "in_per_s": 7.0}
    console.send({"version": 2, "topics": {"changed": [changed], "removed": []}})
    expect(row).to_contain_text("336,777")
    console.send({"version": 3, "topics": {"changed": [], "removed": ["flights"]}})
    expect(page.get_by_role("link", name="flights", exact=True)).to_have_count(0)


def test_a_list_that_comes_late_does_not_bring_back_what_was_deleted(open_page: Open, console: FakeConsole) -> None:
    """The list and the changes come on two connections. A change between them was lost."""
    page = open_page("#/topics?filter=flights")
    flights = page.get_by_role("link", name="flights", exact=True)
    expect(flights).to_be_visible()
    held = _hold(page, "topics")
    page.reload()
    wait_until(lambda: page.evaluate("true") and held, what="the question for the list")
    overview = console.cluster.overview()
    # Later than the answer about the cluster, which may still be on its way.
    overview |= {"cluster_id": "of the change", "at": overview["at"] + 60_000}
    gone = {"version": 2, "topics": {"changed": [], "removed": ["flights"]}, "overview": overview}
    known = "async () => (await import('/page/live.js')).overview.value?.cluster_id"

    def is_told() -> bool:
        console.send(gone)
        return bool(page.evaluate(known) == "of the change")

    wait_until(is_told, what="the change is told")
    held.pop().continue_()
    expect(page.get_by_role("link", name="flights.dead-letters")).to_be_visible()
    expect(flights).to_have_count(0)
    assert page.evaluate(known) == "of the change"


def test_a_topic_is_created_changed_and_deleted(open_page: Open, console: FakeConsole) -> None:
    page = open_page("#/topics")
    page.get_by_role("button", name="Create topic").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("orders")
    dialog.get_by_label("Configs").fill("retention.ms=1000\ncleanup.policy = compact")
    dialog.get_by_role("button", name="Create topic").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("orders")
    assert _asked_last(console, "topics") == {
        "name": "orders",
        "partitions": 3,
        "configs": {"retention.ms": "1000", "cleanup.policy": "compact"},
    }
    reader = page.get_by_role("listitem").filter(has_text="billing")
    expect(reader).to_contain_text("group")
    page.locator("summary", has_text="Change").click()
    page.get_by_role("button", name="Delete topic…").click()
    confirm = page.get_by_role("dialog").get_by_role("button", name="Delete topic")
    expect(confirm).to_be_disabled()
    page.get_by_role("dialog").get_by_role("textbox").fill("orders")
    confirm.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
    assert _asked_last(console, "topics/orders/delete") == {"confirm": "orders"}
    page.goto(f"{console.url}/#/topics/orders/configs")
    page.get_by_role("button", name="Change retention.ms").click()
    page.get_by_role("dialog").get_by_role("textbox").fill("9007199254740993")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert _asked_last(console, "topics/orders/alter") == {"configs": {"retention.ms": str(BEYOND)}}


# -- records -----------------------------------------------------------------------------------------------------


def test_records_scroll_both_ways_from_any_offset(open_page: Open) -> None:
    page = open_page("#/topics/flights/records?from=2500")
    box = page.locator(".virtual")
    offsets = page.locator("tbody tr[data-at] td:nth-child(2)")
    expect(offsets.get_by_text("2500", exact=True)).to_be_in_viewport()

    def shown() -> list[int]:
        return [int(text) for text in offsets.all_inner_texts()]

    def scrolled(edge: str) -> list[int]:
        box.evaluate(f"box => {{ box.scrollTop = {edge} }}")
        return shown()

    wait_until(lambda: scrolled("0")[0] <= 1_900, what="older records come")
    wait_until(lambda: scrolled("box.scrollHeight")[-1] >= 3_200, what="newer records come")
    found = shown()
    assert found == list(range(found[0], found[-1] + 1)), "in order, none twice, none left out"


def test_a_record_is_shown_to_the_last_digit(open_page: Open) -> None:
    page = open_page("#/topics/flights/records")
    page.get_by_role("link", name="4999", exact=True).click()
    side = page.get_by_role("complementary", name="Record")
    expect(side.locator(".code").nth(1)).to_contain_text(str(BEYOND))
    assert "at=0%3A4999" in page.url
    expect(side.locator("time").first).to_have_attribute("title", re.compile(r"UTC · \d+ ms$"))
    side.get_by_role("button", name="Bytes").nth(1).click()
    expect(side.locator(".hex")).to_contain_text("7b 22 66 6c 69 67 68 74")
    page.keyboard.press("Escape")
    expect(side).to_have_count(0)


def test_a_filter_tells_its_progress_and_can_be_cancelled(open_page: Open) -> None:
    page = open_page("#/topics/flights/records")
    expect(page.get_by_role("link", name="4999", exact=True)).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("carrier == 'UA'")
    page.keyboard.press("Enter")
    expect(page.locator(".progress")).to_contain_text("5,000 read, 100 found")
    expect(page.locator(".progress")).to_contain_text("complete")
    unclear = page.locator(".progress").get_by_text("the filter says nothing of 12 records")
    expect(unclear.locator("xpath=..")).to_have_attribute("title", "flights-0 offset 7: 'late' is no number")
    page.locator("summary", has_text="Export").click()
    target = page.get_by_role("link", name="JSON lines").get_attribute("href")
    assert target is not None
    assert target.endswith("/export?format=jsonl&filter=carrier+%3D%3D+%27UA%27&from=earliest")
    # The newest are a place to look at. A search from there on found nothing, and a file had no records.
    page.goto(page.url.partition("#")[0] + "#/topics/flights/records?from=latest&filter=never")
    expect(page.get_by_label("From").locator("option").first).to_have_text("oldest")
    expect(page.get_by_role("link", name="JSON lines", include_hidden=True)).to_have_attribute(
        "href", re.compile("&from=earliest$")
    )
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".progress")).to_contain_text("cancelled")


_HIDE = """hidden => {
    Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });
    document.dispatchEvent(new Event('visibilitychange'));
}"""


def test_who_looks_away_comes_back_to_the_same_records(open_page: Open, console: FakeConsole) -> None:
    """A page that is out of sight gives its stream back, and had its records loaded anew with the next one."""
    page = open_page("#/topics/flights/records?from=2500")
    page.clock.install()
    page.reload()
    wait_until(lambda: console.listeners > 0, what="the page listens")
    seen = page.get_by_role("link", name="2500", exact=True)
    box = page.locator(".virtual")
    wait_until(lambda: box.evaluate("box => box.scrollTop") > 1_000, what="older records come above it")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.rpartition("/api/v1/")[2]))
    listeners = console.listeners
    page.evaluate(_HIDE, True)
    page.clock.fast_forward(11_000)
    wait_until(lambda: console.listeners < listeners, what="the page gives its stream back")
    page.evaluate(_HIDE, False)
    wait_until(
        lambda: page.evaluate("true") and "groups" in asked,
        what="the page loads what it knows of the cluster",
    )
    expect(page.get_by_role("status").get_by_text("Live")).to_be_visible()
    expect(seen).to_be_in_viewport()
    assert [path for path in asked if "/records" in path] == []


def test_a_tail_follows_and_counts_what_it_leaves_out(open_page: Open) -> None:
    page = open_page("#/topics/flights/records")
    page.get_by_role("button", name="Live").click()
    expect(page.locator(".list-foot")).to_contain_text("left out")
    expect(page.locator(".list-foot")).to_contain_text("the filter says nothing of 3 records")
    # Each record is on the screen for half a second: any that was not there before will do.
    expect(page.get_by_role("link", name=re.compile(r"^5\d{3}$")).first).to_be_visible()
    page.get_by_role("button", name="Live").click()
    expect(page.get_by_role("link", name="4999", exact=True)).to_be_visible()


def test_a_tail_says_that_it_lacks_what_came_out_of_sight(open_page: Open) -> None:
    page = open_page("#/topics/flights/records?live=1")
    page.clock.install()
    page.reload()
    foot = page.locator(".list-foot")
    expect(foot).to_contain_text("Following")
    expect(foot).not_to_contain_text("out of sight")
    page.evaluate(_HIDE, True)
    page.clock.fast_forward(11_000)
    page.evaluate(_HIDE, False)
    expect(foot).to_contain_text("without those that came while this page was out of sight")


def test_partitions_without_a_leader_are_told_of(open_page: Open, console: FakeConsole) -> None:
    """Their records are not on the page, which looked whole."""
    page = open_page("#/topics/flights/records")
    foot = page.locator(".list-foot")
    expect(foot).to_contain_text("here")
    wait_until(lambda: console.listeners > 0, what="the page listens")
    changed = {**console.cluster.named_topics()[0], "without_leader": 2}
    console.send({"version": 2, "topics": {"changed": [changed], "removed": []}})
    expect(foot).to_contain_text("2 partitions left out: no leader")
    page.get_by_role("button", name="Live").click()
    expect(foot).to_contain_text("Following")
    expect(foot).to_contain_text("2 partitions left out: no leader")


def test_partitions_that_an_answer_lacks_are_named(open_page: Open, console: FakeConsole) -> None:
    """What the page knows of the topics may be older."""
    console.leaderless = [1, 4]
    page = open_page("#/topics/flights/records")
    foot = page.locator(".list-foot")
    expect(foot).to_contain_text("left out: partitions 1, 4 without a leader")
    page.get_by_role("button", name="Live").click()
    expect(foot).to_contain_text("Following")
    expect(foot).to_contain_text("left out: partitions 1, 4 without a leader")
    page.goto(page.url.partition("#")[0] + "#/topics/flights/records?filter=x")
    expect(page.locator(".progress")).to_contain_text("not complete: partitions 1, 4 without a leader")
    topic = console.cluster.topic("flights") or {}
    unknown = {"leader": -1, "first_offset": None, "end_offset": None}
    answer = {**topic, "partitions": [*topic["partitions"][1:], topic["partitions"][0] | unknown]}
    page.route("**/api/v1/topics/flights", lambda route: route.fulfill(json=answer))
    page.goto(page.url.partition("#")[0] + "#/topics/flights")
    expect(page.locator(".tile", has_text="by offsets").locator(".tile-value")).to_have_text("\u2013")


def test_produce_and_copy(open_page: Open, console: FakeConsole) -> None:
    page = open_page("#/topics/flights/records?at=0:4990")
    page.get_by_role("button", name="Produce one like it…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Value", exact=True)).to_have_value(re.compile(str(BEYOND)))
    dialog.get_by_role("button", name="Produce").click()
    expect(page.get_by_text("Written to partition 0 at offset 5000.")).to_be_visible()
    asked = _asked_last(console, "topics/flights/records")
    assert (asked["key"], asked["key_format"], asked["value_format"]) == ("AA", "string", "json")
    assert str(BEYOND) in asked["value"]
    page.keyboard.press("Escape")
    # Of two headers of one name, one was written, and an empty text in place of null.
    record = console.cluster.record("flights", 4990)
    record["value"] |= {"format": "protobuf", "schema_id": 7}
    headers = (("a", "1"), ("none", None), ("a", "2"), ("trace", "one\ntwo"), ("b=c", "3"), ("d", " 4"))
    record["headers"] = [{"name": name, "text": text} for name, text in headers]
    page.route("**/api/v1/topics/flights/record?*", lambda route: route.fulfill(json=record))
    page.goto(f"{console.url}/#/topics/flights/records?at=0:4991")
    page.get_by_role("button", name="Produce one like it…").click()
    expect(dialog).to_contain_text("The value has a schema (protobuf, schema 7). As json it is written without it.")
    # The second line of such a text was a header of its own.
    expect(dialog.get_by_label("Headers")).to_have_value("a=1\nnone\na=2")
    for name in ("trace", "b=c", "d"):
        expect(dialog).to_contain_text(f"The header {name} is left out")
    dialog.get_by_role("button", name="Produce").click()
    expect(dialog.get_by_role("alert")).to_have_text("Headers: a is given twice")
    dialog.get_by_label("Headers").fill("a=1\nnone")
    dialog.get_by_role("button", name="Produce").click()
    expect(dialog).to_have_count(0)
    assert _asked_last(console, "topics/flights/records")["headers"] == {"a": "1", "none": None}
    page.unroute("**/api/v1/topics/flights/record?*")
    page.goto(f"{console.url}/#/topics/flights/records?at=0:4990")
    page.get_by_role("button", name="Copy to a topic…").click()
    dialog.get_by_label("Topic").fill("nowhere")
    dialog.get_by_role("button", name="Copy", exact=True).click()
    expect(dialog.get_by_role("alert")).to_have_text("there is no topic 'nowhere'")
    dialog.get_by_label("Topic").fill("orders")
    dialog.get_by_role("button", name="Copy", exact=True).click()
    expect(dialog).to_have_count(0)
    assert _asked_last(console, "topics/flights/copy") == {"partition": 0, "offset": 4990, "to": "orders"}


# -- groups, dead letters, schemas, views, connectors, security, applications ----------------------------------------


def test_a_tail_begins_anew_that_learns_late_that_its_connection_was_lost(open_page: Open) -> None:
    """The question why it ended may take longer than the way back to the console."""
    page = open_page("#/topics/flights/records")
    lost = iter([True])
    held: list[Any] = []

    def answer(route: Any) -> None:
        if route.request.resource_type == "fetch":
            held.append(route)
        elif next(lost, False):
            route.abort("connectionreset")
        else:
            route.continue_()

    page.route("**/api/v1/topics/flights/tail**", answer)
    page.get_by_role("button", name="Live").click()
    wait_until(lambda: page.evaluate("true") and held, what="the question why it ended")
    page.evaluate("async () => { (await import('/page/api.js')).generation.value += 1; }")
    held.pop().abort("connectionreset")
    expect(page.get_by_role("link", name=re.compile(r"^5\d{3}$")).first).to_be_visible()
    expect(page.get_by_text("The connection was lost.")).to_have_count(0)


def test_a_group_is_reset_after_its_plan_was_seen(open_page: Open, console: FakeConsole) -> None:
    page = open_page("#/groups?filter=billing")
    page.get_by_role("link", name="billing").click()
    page.get_by_role("button", name="Reset offsets…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("The group has 2 members")
    dialog.get_by_label("To", exact=True).select_option("shift")
    dialog.get_by_label("Records").fill("-10")
    dialog.get_by_role("button", name="Show the plan").click()
    expect(dialog).to_contain_text("-300,000")
    assert _asked_last(console, "groups/billing/reset") == {"to": "shift", "value": -10, "dry_run": True}
    dialog.get_by_role("button", name="Reset the offsets").click()
    expect(page.get_by_text("Offsets of 3 partitions were reset.")).to_be_visible()
    assert _asked_last(console, "groups/billing/reset")["dry_run"] is False


def test_a_group_of_dead_letters_of_which_nothing_is_said_is_opened(open_page: Open) -> None:
    """A topic whose records have no headers: nothing happened, and of a group without a reason those of others came."""
    page = open_page("#/overview")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.partition("/api/v1/")[2]))
    group = {"records": 2, "waiting": 2, "first": [0, 0], "last_timestamp": 1}
    groups = [
        {"origin_topic": None, "exception": "", "reason": "", **group},
        {"origin_topic": "flights", "exception": "ValueError", "reason": "", **group},
    ]
    found = {"groups": groups, "read": 4, "complete": True}
    page.route("**/api/v1/dead-letters/plain", lambda route: route.fulfill(json=found))
    page.evaluate("hash => { location.hash = hash }", "#/dead-letters/plain")
    for row, said in (
        ("unknown", "origin_topic=&exception=&group_reason="),
        ("flights", "origin_topic=flights&exception=ValueError&group_reason="),
    ):
        page.get_by_role("row").filter(has_text=row).get_by_role("link", name="no reason given").click()
        expect(page.get_by_role("heading", name="Records: no reason given")).to_be_visible()
        wait_until(
            lambda said=said: page.evaluate("true") and f"dead-letters/plain/records?limit=500&{said}" in asked,  # type: ignore[misc]
            what="the question for its records",
        )


def test_long_names_and_reasons_push_nothing_off_the_page(open_page: Open, console: FakeConsole) -> None:
    """The groups of a topic, and the buttons beside a reason, could not be seen."""
    page = open_page("#/overview")
    long = "x" * 249
    group = {"records": 2, "waiting": 2, "first": [0, 0], "last_timestamp": 1}
    groups = [{"origin_topic": long, "exception": long * 2, "reason": long * 2, **group}]
    page.route(
        "**/api/v1/dead-letters/long",
        lambda route: route.fulfill(json={"groups": groups, "read": 2, "complete": True}),
    )
    page.evaluate("hash => { location.hash = hash }", "#/dead-letters/long")
    expect(page.get_by_role("button", name="Redrive: x")).to_be_in_viewport(ratio=1)
    topic = console.cluster.topic("flights")
    page.route(f"**/api/v1/topics/{long}", lambda route: route.fulfill(json={**(topic or {}), "name": long}))
    page.evaluate("hash => { location.hash = hash }", f"#/topics/{long}")
    expect(page.locator(".lineage").get_by_role("link", name="carrier-delays").first).to_be_in_viewport(ratio=1)


def test_a_narrow_window_shows_names_and_scrolls_no_page_sideways(open_page: Open) -> None:
    """The columns with the names of topics and of groups had no width."""
    page = open_page("#/topics")
    page.set_viewport_size({"width": 390, "height": 800})
    expect(page.get_by_role("link", name="flights", exact=True)).to_be_in_viewport(ratio=1)
    page.evaluate("hash => { location.hash = hash }", "#/groups")
    expect(page.get_by_role("link", name="carrier-delays", exact=True)).to_be_in_viewport(ratio=1)
    for query, said in (("live=1", "left out"), ("filter=x", "complete")):
        page.evaluate("hash => { location.hash = hash }", f"#/topics/flights/records?{query}")
        expect(page.get_by_text(said).first).to_be_visible()
        main = page.locator("main")
        wait_until(
            lambda main=main: main.evaluate("one => one.scrollWidth <= one.clientWidth"),  # type: ignore[misc]
            what="nothing is beside the page",
        )


def _changed_meanwhile(page: Any, path: str, button: str, change: Callable[[Any], None]) -> None:
    """The form is changed between a question for its plan and the answer."""
    held = _hold(page, path)
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name=button).click()
    wait_until(lambda: page.evaluate("true") and held, what="the question for the plan")
    change(dialog)
    with page.expect_response(f"**/api/v1/{path}"):
        held.pop().continue_()
    expect(dialog.get_by_role("button", name=button)).to_be_enabled()
    expect(dialog).not_to_contain_text("What would")


def test_a_plan_that_comes_late_is_not_taken_for_that_of_the_changed_form(
    open_page: Open, console: FakeConsole
) -> None:
    """The page showed the plan of one reset, and its button did another."""
    page = open_page("#/groups/fraud")
    page.get_by_role("button", name="Reset offsets…").click()
    dialog = page.get_by_role("dialog")
    _changed_meanwhile(
        page,
        "groups/fraud/reset",
        "Show the plan",
        lambda form: form.get_by_label("To", exact=True).select_option("latest"),
    )
    dialog.get_by_role("button", name="Show the plan").click()
    dialog.get_by_role("button", name="Reset the offsets").click()
    expect(dialog).to_have_count(0)
    assert _asked_last(console, "groups/fraud/reset") == {"to": "latest", "dry_run": False}
    page.evaluate("hash => { location.hash = hash }", DEAD_LETTERS)
    page.get_by_role("button", name="Redrive all…").click()
    _changed_meanwhile(
        page,
        "dead-letters/flights.dead-letters/redrive",
        "Show what would be sent",
        lambda form: form.get_by_role("checkbox").check(),
    )


def test_chosen_dead_letters_go_back_after_their_plan_was_seen(open_page: Open, console: FakeConsole) -> None:
    page = open_page(DEAD_LETTERS)
    expect(page.get_by_role("region", name="The record it came from")).to_contain_text("flights-0 @ 7")
    page.get_by_role("checkbox", name="Choose 0:1", exact=True).check()
    page.get_by_role("checkbox", name="Choose 0:3", exact=True).check()
    expect(page.get_by_role("checkbox", name="Choose 0:9", exact=True)).to_be_disabled()
    page.get_by_role("button", name="Redrive 2 chosen…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Show what would be sent").click()
    expect(dialog).to_contain_text("2 stay")
    asked = _asked_last(console, "dead-letters/flights.dead-letters/redrive")
    assert asked == {"places": [[0, 1], [0, 3]], "dry_run": True}
    dialog.get_by_role("button", name="Send 2 records back").click()
    expect(page.get_by_text("2 records went back.")).to_be_visible()
    asked = _asked_last(console, "dead-letters/flights.dead-letters/redrive")
    assert asked == {"places": [[0, 1], [0, 3]], "only_to": ["flights"], "dry_run": False}


def test_times_are_by_the_clock_of_the_console(open_page: Open, console: FakeConsole) -> None:
    """By a clock that is behind, everything was "0 ms ago"."""
    page = open_page("#/overview")
    page.clock.install(time=datetime.now(UTC) - timedelta(minutes=10))
    page.goto(page.url.partition("#")[0] + DEAD_LETTERS)
    page.reload()
    last = page.get_by_role("table", name="Reasons").locator("time").filter(has_text="ago")
    passed_s = time.time() - (console.cluster.started - 60_000) / 1_000
    assert 60 <= passed_s < 1_200
    expect(last.first).to_have_text(re.compile(rf"^\s*{int(passed_s // 60)} min|{int(passed_s // 60) + 1} min"))


def test_redrives_that_may_not_be_read_are_told_of(open_page: Open) -> None:
    page = open_page("#/overview")
    _answers(page, "dead-letters/flights.dead-letters/history", 404, "nobody may describe suiro.redrives")
    page.evaluate("hash => { location.hash = hash }", DEAD_LETTERS)
    expect(page.get_by_text("The redrives so far cannot be shown: nobody may describe")).to_be_visible()


def test_after_a_redrive_the_letters_are_told_anew(open_page: Open) -> None:
    """Those that had gone back were still shown as waiting, and were still chosen."""
    page = open_page(DEAD_LETTERS)
    page.get_by_role("checkbox", name="Choose 0:1", exact=True).check()
    page.get_by_role("button", name="Redrive 1 chosen…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Show what would be sent").click()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.partition("/flights.dead-letters")[2]))
    dialog.get_by_role("button", name="Send 1 record back").click()
    expect(page.get_by_role("button", name="Redrive 0 chosen…")).to_be_disabled()
    wait_until(
        lambda: page.evaluate("true") and "/history" in asked and any("/records" in path for path in asked),
        what="what there is after the redrive",
    )


def test_schemas_show_what_changed_and_check_a_new_one(open_page: Open) -> None:
    page = open_page("#/schemas")
    page.get_by_role("link", name="orders-value").click()
    page.get_by_label("Changes since").select_option("1")
    expect(page.locator(".diff-new").first).to_contain_text(HOSTILE.replace('"', '\\"'))
    page.get_by_role("button", name="Check a schema…").click()
    page.get_by_role("dialog").get_by_label("Schema").fill('{"type": "string"}')
    page.get_by_role("dialog").get_by_role("button", name="Check").click()
    expect(page.get_by_role("alert")).to_contain_text("READER_FIELD_MISSING_DEFAULT_VALUE")


def test_a_view_is_shifted_rolled_back_compared_and_retired(open_page: Open, console: FakeConsole) -> None:
    page = open_page("#/views")
    page.get_by_role("link", name="carrier_delays").click()
    expect(page.get_by_role("listitem").and_(page.locator(".step.now"))).to_contain_text("6 min left")
    page.get_by_role("button", name="Shift…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("p99 of reads, max ms").fill("50")
    dialog.get_by_role("button", name="Shift").click()
    expect(dialog).to_have_count(0)
    assert _asked_last(console, "views/0/carrier_delays/shift") == {
        "steps": [1, 10, 50, 100],
        "hold_ms": 600_000,
        "guards": {"errors": 0.01, "p99_ms": 50, "lag_ms": 10_000},
    }
    page.get_by_role("button", name="Roll back").click()
    dialog.get_by_role("button", name="Roll back").click()
    expect(page.get_by_text("All callers are back on the serving version.")).to_be_visible()
    assert _asked_last(console, "views/0/carrier_delays/rollback") == {}
    page.get_by_role("article", name="Version 3").get_by_role("button", name="Retire…").click()
    dialog.get_by_role("textbox").fill("carrier_delays")
    dialog.get_by_role("button", name="Retire").click()
    expect(dialog).to_have_count(0)
    assert _asked_last(console, "views/0/carrier_delays/retire") == {"version": 3, "yes": True}
    page.get_by_role("link", name="Differences").click()
    expect(page.get_by_text(str(BEYOND))).to_be_visible()
    expect(page.get_by_label("Comparison")).to_have_value("1795000900000-5e1f0c2a")  # the newest
    page.get_by_role("button", name="Explain the examples").click()
    record = page.get_by_role("link", name="flights-4@20871")
    expect(record).to_have_attribute("href", "#/topics/flights/records?at=4%3A20871")
    page.get_by_role("link", name="History").click()
    expect(page.get_by_role("list", name="Decisions")).to_contain_text("from: 1 %, to: 10 %")


def test_what_is_wrong_now_is_said_first_and_leads_there(open_page: Open) -> None:
    page = open_page("#/overview")
    wrong = page.get_by_role("region", name="Wrong now")
    expect(wrong).to_contain_text("1 error, 3 warnings")
    expect(wrong).to_contain_text("and 3 further problems")
    expect(wrong).to_contain_text(HOSTILE)
    expect(page.get_by_role("table", name="Applications, views and connectors")).to_contain_text(
        "lag 1,204, 825 held back, 1 retry"
    )
    wrong.get_by_role("link", name="New dead letters in flights.dead-letters").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("flights.dead-letters")


def test_what_could_not_be_asked_is_not_said_to_be_well(open_page: Open) -> None:
    page = open_page("#/topics")
    _settled(page)
    _answers(page, "problems", 500, "the console failed")
    found = {**FakeCluster(topics=1, groups=1).overview(), "problems": []}
    page.route("**/api/v1/overview", lambda route: route.fulfill(json=found))
    page.evaluate("location.hash = '#/overview'")
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("cannot be loaded: the console failed")
    expect(page.get_by_text("No known problems")).to_have_count(0)


def test_a_capture_shows_its_snapshot_and_changed_tables(open_page: Open) -> None:
    page = open_page("#/connectors")
    capture = page.get_by_role("article", name="postgres-orders")
    expect(capture).to_contain_text("2 of 6 tables complete")
    row = capture.get_by_role("row", name="public.order_lines")
    expect(row).to_contain_text("1.20 M of 3.10 M")
    expect(row.get_by_role("img", name="39 % of the rows, about")).to_be_visible()
    resumed = capture.get_by_role("row", name="public.events")
    expect(resumed).to_contain_text("+ 81.0 k")
    expect(resumed.get_by_role("img")).to_have_count(0)  # of what was read before nothing is known
    expect(capture.get_by_role("row", name="public.prices")).to_contain_text("locked")
    expect(capture).to_contain_text("column 'note' is new")
    expect(capture.get_by_role("link", name="public.orders", exact=True).last).to_have_attribute(
        "href", "#/schemas/shop.public.orders-value"
    )


def test_connectors_are_paused_and_restarted(open_page: Open, console: FakeConsole) -> None:
    page = open_page("#/connectors")
    page.get_by_role("article", name="postgres-orders").get_by_role("button", name="Pause").click()
    expect(page.get_by_text("postgres-orders: pause was asked for.")).to_be_visible()
    assert _asked_last(console, "connectors/0/postgres-orders/pause") == {}
    expect(page.get_by_role("article", name="orders-to-postgres")).to_contain_text("Next try in")


def test_rules_and_users(open_page: Open, console: FakeConsole) -> None:
    page = open_page("#/security")
    page.get_by_role("button", name="Remove the rule of User:billing to read orders").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.get_by_text("The rule was removed.")).to_be_visible()
    assert _asked_last(console, "acls/delete")["principal"] == "User:billing"
    page.get_by_role("link", name="Users").click()
    page.get_by_role("button", name="Add user").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("search")
    dialog.get_by_label("Password").fill("hunter2")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    assert _asked_last(console, "users") == {
        "name": "search",
        "mechanism": "SCRAM-SHA-512",
        "password": "hunter2",
    }


def test_an_application_is_drawn_and_its_stores_have_rows(open_page: Open) -> None:
    page = open_page("#/applications")
    page.get_by_role("link", name="carrier-delays").click()
    node = page.get_by_role("button", name=re.compile("^processor with-weather"))
    expect(node).to_contain_text("/s")
    node.press("Enter")
    expect(node).to_have_attribute("aria-pressed", "true")
    expect(page.locator("main")).to_contain_text("one by one: it has no block form yet")
    expect(page.locator("main")).to_contain_text("128 late")
    held = page.get_by_role("table", name="Records held back")
    expect(held).to_contain_text("413")
    expect(page.locator("main")).to_contain_text("An input has more records in the log")
    page.get_by_role("link", name="Micro-batches").click()
    expect(page.get_by_role("img", name=re.compile("^Duration of micro-batches"))).to_be_visible()
    page.get_by_role("link", name="Stores").click()
    expect(page.get_by_role("table", name="Stores")).to_contain_text("5,850")
    page.get_by_role("link", name="delays", exact=True).click()
    page.get_by_role("link", name='["UA", "2013-07-04"]').click()
    expect(page.get_by_role("heading", name="The row")).to_be_visible()
    page.get_by_role("button", name="Look for them").click()
    expect(page.locator("main")).to_contain_text("3 records of 336,776 that were read")
    found = page.get_by_role("table", name="Input records of the row").get_by_role("link", name=str(BEYOND))
    expect(found).to_have_attribute("href", f"#/topics/flights/records?at=0%3A{BEYOND}")


def test_a_search_of_a_store_goes_back_with_the_page(open_page: Open) -> None:
    page = open_page("#/applications/0/stores/delays")
    search = page.get_by_label("Key contains")
    search.fill("UA")
    search.press("Enter")
    expect(page).to_have_url(re.compile("contains=UA"))
    page.go_back()
    expect(page).to_have_url(re.compile("stores/delays$"))
    expect(search).to_have_value("")


# -- of all of it ------------------------------------------------------------------------------------------------


def test_nothing_of_what_the_cluster_says_becomes_markup(open_page: Open) -> None:
    page = open_page("#/topics/hostile/records?at=0:3")
    side = page.get_by_role("complementary", name="Record")
    expect(side.locator(".code").nth(1)).to_contain_text("<script>")
    expect(side.get_by_role("table", name="Headers")).to_contain_text(HOSTILE)
    for target, text in (
        ("#/topics?filter=bad.", f"bad.{HOSTILE_NAME}"),
        ("#/topics/flights", HOSTILE),
        ("#/topics/bad." + HOSTILE_NAME.replace("=", "%3D"), f"bad.{HOSTILE_NAME}"),
        ("#/groups?filter=img", HOSTILE_NAME),
        ("#/schemas", f"bad.{HOSTILE_NAME}-value"),
        ("#/connectors", HOSTILE),
        ("#/security", HOSTILE),
        ("#/applications/0/stores/delays?row=%5B%22UA%22,%20%222013-07-01%22%5D%20", "<script>"),
    ):
        page.evaluate("hash => { location.hash = hash }", target)
        expect(page.locator("main")).to_contain_text(text)
        assert page.locator("img, main script, iframe, object, [href^=javascript]").count() == 0


def test_json_is_read_and_laid_out_without_loss(open_page: Open) -> None:
    page = open_page()
    kept = '{"a":1.0,"a":[],"__proto__":{"b":1e400},"c":-9007199254740993,"d":"\\u0041 {,}","e":[true,null]}'
    found = page.evaluate(
        """async ([kept, deep]) => {
            const { parse, stringify, layOut } = await import('/page/json.js');
            const text = tokens => tokens && tokens.map(token => token.text).join('');
            return {
                exact: stringify(parse('{"offset":9223372036854775807,"share":0.5}')),
                plain: stringify(parse('{"offset":42}')),
                kept: text(layOut(kept)).replace(/\\n */g, '').replaceAll(': ', ':'),
                lines: text(layOut('{"a":[1,{}]}')),
                none: ['', '{', 'text', '{"a":01}', '[1,]'].map(layOut),
                deep: text(layOut(deep)).length,
                long: layOut('"' + 'x'.repeat(300_000) + '"'),
            };
        }""",
        [kept, "[" * 5_000 + "]" * 5_000],
    )
    assert found["exact"] == '{"offset":9223372036854775807,"share":0.5}'
    assert found["plain"] == '{"offset":42}'
    assert found["kept"] == kept
    assert found["lines"] == '{\n  "a": [\n    1,\n    {}\n  ]\n}'
    assert found["none"] == [None] * 5
    assert found["deep"] < 1_000_000, "indentation has an end"
    assert found["long"] is None


def test_the_keyboard_is_enough(open_page: Open) -> None:
    page = open_page()
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_text("Overview")
    for key, title in (
        ("g", "Groups"),
        ("s", "Schemas"),
        ("d", "Dead letters"),
        ("v", "Views"),
        ("t", "Topics"),
    ):
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(heading).to_have_text(title)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("/")
    page.keyboard.type("flights")
    expect(page.locator("tbody tr[data-at]")).to_have_count(2)
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="flights", exact=True)).to_be_focused()
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="flights.dead-letters")).to_be_focused()
    page.keyboard.press("Enter")
    expect(heading).to_have_text("flights.dead-letters")
    expect(heading).to_be_focused()
    page.keyboard.press("r")
    expect(page.locator(".tabs a[aria-current]")).to_have_text("Records")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox", name="Name of a page")).to_be_focused()
    page.keyboard.type("events-00042")
    page.keyboard.press("Enter")
    expect(heading).to_have_text("tenant-000.events-00042")


def test_a_viewer_sees_no_button_that_would_be_refused(open_page: Open) -> None:
    viewer = FakeConsole(FakeCluster(role="viewer", topics=10, groups=3))
    try:
        page = open_page(url=viewer.url)
        allowed = re.compile(
            r"Go to|Keyboard|Live|Filter|Close|Copy the|Decoded|Text|Bytes|Check|Compare|Explain|Why|Look|Newer|"
            r"^(topic|processor|source|sink|repartition) "
        )
        for target in PAGES.values():
            page.evaluate("hash => { location.hash = hash }", target)
            _settled(page)
            names = page.locator("main button:not(.sort)").evaluate_all(
                "found => found.map(one => one.getAttribute('aria-label') || one.textContent.trim())"
            )
            assert [name for name in names if not allowed.search(name)] == [], target
    finally:
        viewer.stop()


def test_the_page_comes_back_when_the_console_does(open_page: Open) -> None:
    first = FakeConsole(FakeCluster(topics=3, groups=1))
    page = open_page("#/topics", url=first.url)
    expect(page.get_by_role("link", name="tenant-000.events-00002")).to_be_visible()
    first.stop()
    expect(page.get_by_role("alert")).to_contain_text("this page reconnects by itself")
    expect(page.get_by_role("link", name="tenant-000.events-00002")).to_be_visible()
    second = FakeConsole(FakeCluster(topics=5, groups=1), port=first.port)
    try:
        expect(page.get_by_role("link", name="tenant-000.events-00004")).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(0)
    finally:
        second.stop()


def _answers(page: Any, path: str, status: int, message: str) -> None:
    """From now on, in place of the console."""
    body = json.dumps({"error_code": status, "message": message})
    page.route(
        f"**/api/v1/{path}",
        lambda route: route.fulfill(status=status, content_type="application/json", body=body),
    )


@pytest.mark.parametrize(
    ("target", "path", "button", "label"),
    [
        ("#/views/0/carrier_delays", "views/0/carrier_delays", "Shift…", "Steps, in percent of the callers"),
        ("#/groups/fraud", "groups/fraud", "Reset offsets…", "Offset"),
        ("#/topics/flights", "topics/flights", "Add partitions…", "Partitions, 12 now"),
    ],
)
def test_a_form_stays_while_what_it_is_about_cannot_be_loaded(
    open_page: Open, target: str, path: str, button: str, label: str
) -> None:
    """A page is loaded again every few seconds. One answer that failed took the form with all that was typed, and of a
    view the whole page: nothing was drawn any more."""
    page = open_page(target)
    page.clock.install()
    page.reload()
    if path.startswith("topics"):
        page.locator("summary", has_text="Change").click()
    page.get_by_role("button", name=button).click()
    dialog = page.get_by_role("dialog")
    if path.startswith("groups"):
        dialog.get_by_label("To", exact=True).select_option("offset")
    dialog.get_by_label(label, exact=True).fill("4711")
    _answers(page, path, 503, "busy; try again")
    page.clock.fast_forward(REFRESHED_MS)
    expect(page.get_by_text("busy; try again")).to_be_attached()
    expect(dialog.get_by_label(label, exact=True)).to_have_value("4711")
    page.unroute(f"**/api/v1/{path}")
    _answers(page, path, 404, "there is nothing of that name")
    page.clock.fast_forward(REFRESHED_MS)
    expect(page.get_by_text("there is nothing of that name")).to_be_visible()
    page.evaluate("hash => { location.hash = hash }", "#/topics")
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics")


def test_an_answer_that_comes_after_its_form_was_closed_closes_no_other(open_page: Open) -> None:
    page = open_page("#/topics/flights")
    dialog = page.get_by_role("dialog")
    confirm = dialog.get_by_role("textbox")

    def begun() -> Any:
        """A change that waits for its answer, and whose form was closed; then another form."""
        held = _hold(page, "topics/flights/alter")
        page.locator("summary", has_text="Change").click()
        page.get_by_role("button", name="Add partitions…").click()
        dialog.get_by_role("button", name="Add partitions").click()
        wait_until(lambda: page.evaluate("true") and held, what="the change")
        dialog.get_by_role("button", name="Cancel").click()
        page.locator("summary", has_text="Change").click()
        page.get_by_role("button", name="Delete topic…").click()
        confirm.fill("fli")
        return held.pop()

    begun().continue_()
    expect(page.get_by_text("Partitions were added.")).to_be_attached()
    expect(confirm).to_have_value("fli")
    dialog.get_by_role("button", name="Cancel").click()
    begun().fulfill(status=503, json={"error_code": 503, "message": "no broker answers"})
    expect(page.get_by_text("no broker answers")).to_be_attached()
    expect(confirm).to_have_value("fli")


@pytest.mark.parametrize(
    ("target", "path", "open_form", "plan", "do", "said"),
    [
        (
            "#/groups/fraud",
            "groups/fraud/reset",
            "Reset offsets…",
            "Show the plan",
            "Reset the offsets",
            "were reset.",
        ),
        (
            DEAD_LETTERS,
            "dead-letters/flights.dead-letters/redrive",
            "Redrive all…",
            "Show what would be sent",
            re.compile("^Send .* back$"),
            "went back.",
        ),
    ],
)
def test_a_plan_that_is_done_after_its_form_was_closed_closes_no_other(
    open_page: Open, target: str, path: str, open_form: str, plan: str, do: Any, said: str
) -> None:
    """A redrive may take minutes. Its error was told to nobody, too."""
    page = open_page(target)
    dialog = page.get_by_role("dialog")

    def begun() -> Any:
        """It waits for its answer, its form was closed, and another one is open."""
        page.get_by_role("button", name=open_form).click()
        dialog.get_by_role("button", name=plan).click()
        expect(dialog.get_by_role("button", name=do)).to_be_enabled()
        held = _hold(page, path)
        dialog.get_by_role("button", name=do).click()
        wait_until(lambda: page.evaluate("true") and held, what="the change")
        dialog.get_by_role("button", name="Cancel").click()
        page.get_by_role("button", name=open_form).click()
        return held.pop()

    begun().continue_()
    expect(page.get_by_text(said)).to_be_attached()
    expect(dialog.get_by_role("button", name=plan)).to_be_visible()
    dialog.get_by_role("button", name="Cancel").click()
    begun().fulfill(status=503, json={"error_code": 503, "message": "no broker answers"})
    expect(page.get_by_text("no broker answers")).to_be_attached()
    expect(dialog.get_by_role("button", name=plan)).to_be_visible()


# -- against a real console and a real log -----------------------------------------------------------------------------


def test_a_real_console(open_page: Open, tmp_path: Path) -> None:
    with InProcessNode.start(data=tmp_path / "node") as node:
        server = ConsoleServer(ConsoleSettings(bootstrap_servers=node.bootstrap_servers, port=0))
        try:
            page = open_page("#/topics", url=server.url)
            expect(page.get_by_text("No topics yet")).to_be_visible()
            expect(page.get_by_role("navigation", name="Main").get_by_role("link")).to_have_count(5)
            page.get_by_role("button", name="Create topic").click()
            dialog = page.get_by_role("dialog")
            dialog.get_by_label("Name", exact=True).fill("orders")
            dialog.get_by_label("Partitions").fill("1")
            dialog.get_by_role("button", name="Create topic").click()
            expect(page.get_by_role("heading", level=1)).to_have_text("orders")
            page.keyboard.press("r")
            for carrier, delay in (("UA", 61), ("B6", 7)):
                page.get_by_role("button", name="Produce", exact=True).click()
                dialog.get_by_label("Key", exact=True).fill(carrier)
                value = f'{{"carrier": "{carrier}", "dep_delay": {delay}, "id": {BEYOND}}}'
                dialog.get_by_label("Value", exact=True).fill(value)
                dialog.get_by_role("button", name="Produce").click()
                expect(page.get_by_role("complementary", name="Record")).to_contain_text(carrier)
            expect(page.get_by_role("complementary", name="Record")).to_contain_text(str(BEYOND))
            page.keyboard.press("Escape")
            page.keyboard.press("/")
            page.keyboard.type("carrier == 'UA' and dep_delay > 60")
            page.keyboard.press("Enter")
            expect(page.locator(".progress")).to_contain_text("2 read, 1 found")
            with Client(node.bootstrap_servers) as client:
                produce(client, "orders", [OutgoingRecord(key=None, value=b"%d" % n) for n in range(500)])
            page.goto(f"{server.url}/#/topics")
            expect(page.locator("tbody tr[data-at]", has_text="orders")).to_contain_text("502")
            page.goto(f"{server.url}/#/topics/orders/records?from=250")
            expect(page.get_by_role("link", name="250", exact=True)).to_have_count(1)

            def first_is_shown() -> bool:
                page.locator(".virtual").evaluate("box => { box.scrollTop = 0 }")
                return bool(page.get_by_role("link", name="0", exact=True).count() == 1)

            wait_until(first_is_shown, what="the records before offset 250 come")
            page.close()  # the server would wait for its stream
        finally:
            server.stop()


def test_a_login_by_a_provider(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that ends while the page is open, a role that changed meanwhile, a login of another browser."""
    monkeypatch.setattr(overview, "KEEP_ALIVE_S", 0.2)  # a stream learns then that its session has ended
    provider = OidcProvider()
    served = Served(provider.issuer)
    try:
        page = open_page("#/groups", url=served.url, sent_to=provider.issuer)
        user = page.get_by_role("complementary").first
        page.get_by_role("link", name="Log in").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Groups")
        expect(page).to_have_url(f"{served.url}/#/groups")
        expect(user).to_contain_text("ada")
        expect(user).to_contain_text("admin")
        (session,) = [one for one in page.context.cookies() if one["name"].endswith("-session")]
        assert (session["sameSite"], session["httpOnly"]) == ("Strict", True)
        served.clock.advance(480 * 60_000)  # --oidc-session-minutes
        now = served.clock.wall_ms() // 1_000
        provider.claims.update({"roles": ["kafka"], "iat": now, "exp": now + 300})
        page.get_by_role("link", name="Log in").click()
        expect(user).to_contain_text("viewer")
        page.goto(f"{served.url}/login/callback?code=of-another&state=of-another")
        expect(page.get_by_text("This login was not begun in this browser")).to_be_visible()
        page.goto(f"{served.url}/#/groups")
        expect(user).to_contain_text("viewer")
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_text("logged out")).to_be_visible()
        page.goto(f"{served.url}/#/groups")
        expect(page.get_by_role("link", name="Log in")).to_be_visible()
        page.close()
    finally:
        served.stop()
        provider.stop()
