"""A console on this machine, and a browser on it that is also at a page of somebody else; and values that attack.

The console has no logins here: whoever reaches it by a name of this machine may do everything, so that what a browser
lets other pages send is all that they need.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest
from starlette.responses import HTMLResponse
from support.fake_console_cluster import HOSTILE
from support.oidc_provider import CLIENT_ID, SECRET, OidcProvider
from support.waiting import wait_until

from suiro.client import Client, NewTopic
from suiro.console.records import OutgoingRecord, produce
from suiro.console.web import ConsoleServer, ConsoleSettings
from suiro.console.web.oidc import OidcSettings
from suiro.foundation.http import HttpServer, Role, listen_on
from suiro.node import InProcessNode
from suiro.registry import InProcessRegistry, RegistryClient, RegistryConfig, Schema

sync_api = pytest.importorskip("playwright.sync_api")
expect = sync_api.expect
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no Chromium here; `apt-get install chromium` brings it"
)
TIMEOUT_MS = 30_000
PAGES_OF_OTHERS = "pages.example"
REBOUND = "rebound.example"
"""Names that the browser resolves to this machine: another site, and a name that an attacker made to point here."""

ATTACKS = """
async ([target, topic]) => {
  const body = JSON.stringify({ name: topic, partitions: 1 });
  const seen = {};
  const attempt = async (name, run) => {
    try { seen[name] = String(await Promise.race([run(), new Promise((done) => setTimeout(done, 3000, 'nothing'))])); }
    catch (error) { seen[name] = `refused: ${error.name}`; }
  };
  const loaded = (element, url) => new Promise((done) => {
    element.onload = () => done('loaded');
    element.onerror = () => done('refused');
    element.src = url;
    document.body.append(element);
  });
  const url = `${target}/api/v1/topics`;
  const post = async (type, more = {}) => {
    const headers = { 'Content-Type': type };
    return (await fetch(url, { method: 'POST', body, headers, ...more })).status;
  };
  const noCors = { mode: 'no-cors' };
  await attempt('read', async () => (await fetch(url)).text());
  await attempt('read without cors', async () => (await (await fetch(url, noCors)).text()).length);
  await attempt('write', () => post('application/json'));
  for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x']) {
    await attempt(`write as ${type}`, () => post(type, noCors));
  }
  await attempt('beacon', async () => navigator.sendBeacon(url, new Blob([body], { type: 'text/plain' })));
  await attempt('form', async () => {
    const form = document.createElement('form');
    Object.assign(form, { method: 'POST', action: url, enctype: 'text/plain', target: 'sent' });
    const field = document.createElement('input');
    Object.assign(field, { name: '{"name": "' + topic + '", "partitions": 1, "x": "', value: '"}' });
    form.append(field);
    document.body.append(form);
    form.submit();
    return 'sent';
  });
  await attempt('script', () => loaded(document.createElement('script'), url));
  await attempt('image', () => loaded(document.createElement('img'), url));
  await attempt('events', () => new Promise((done) => {
    const source = new EventSource(`${target}/api/v1/events`);
    source.onmessage = source.onopen = () => done('opened');
    source.addEventListener('hello', () => done('opened'));
    source.onerror = () => done('refused');
  }));
  await attempt('frame', async () => {
    const frame = document.createElement('iframe');
    await loaded(frame, `${target}/`);
    return frame.contentDocument?.body?.textContent ?? 'out of reach';
  });
  return seen;
}
"""


@dataclass
class Scene:
    browser: Any
    node: InProcessNode
    client: Client
    console: ConsoleServer

    @property
    def port(self) -> int:
        return int(self.console.url.rpartition(":")[2])

    def topics(self) -> set[str]:
        return set(self.client.metadata())

    def open(self, url: str) -> Any:
        page = self.browser.new_context().new_page()
        page.set_default_timeout(TIMEOUT_MS)
        page.goto(url)
        return page


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    resolved = f"MAP {PAGES_OF_OTHERS} 127.0.0.1, MAP {REBOUND} 127.0.0.1"
    with (
        sync_api.sync_playwright() as playwright,
        InProcessNode.start(data=tmp_path_factory.mktemp("node")) as node,
        Client(node.bootstrap_servers) as client,
        InProcessRegistry(RegistryConfig(bootstrap_servers=node.bootstrap_servers, port=0)) as registry,
    ):
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", f"--host-resolver-rules={resolved}"]
        )
        console = ConsoleServer(
            ConsoleSettings(bootstrap_servers=node.bootstrap_servers, port=0, registry=registry.url)
        )
        client.create_topics([NewTopic("orders", 1)])
        with RegistryClient(registry.url) as schemas:
            record = {"type": "record", "name": "R", "doc": HOSTILE, "fields": []}
            schemas.register("orders-value", Schema(json.dumps(record)))
        wait_until(lambda: "orders" in console.console.model.topics, 60, "the console to know the topic")
        yield Scene(browser, node, client, console)
        browser.close()
        console.stop()


@pytest.fixture
def pages_of_others() -> Iterator[str]:
    async def page(scope: Any, receive: Any, send: Any) -> None:
        await HTMLResponse("<!doctype html><title>prizes</title><body>")(scope, receive, send)

    server = HttpServer(page, listen_on("127.0.0.1", 0, name="pages"), name="pages")
    yield server.url.replace("127.0.0.1", PAGES_OF_OTHERS)
    server.stop()


def test_a_page_of_another_site_reads_and_changes_nothing(scene: Scene, pages_of_others: str) -> None:
    own = scene.open(scene.console.url)
    seen = own.evaluate(ATTACKS, [scene.console.url, "mine"])  # the same requests, from the console's page
    assert (seen["write"], seen["events"], "orders" in seen["read"]) == ("200", "opened", True), seen
    own.context.close()
    before = scene.topics()
    assert "mine" in before
    page = scene.open(pages_of_others)
    seen = page.evaluate(ATTACKS, [scene.console.url, "owned"])
    assert seen["read"].startswith("refused"), seen
    assert seen["read without cors"] in ("0", "refused: TypeError"), seen
    assert seen["write"].startswith("refused"), seen
    assert (seen["image"], seen["script"], seen["events"]) == ("refused", "refused", "refused"), seen
    assert seen["frame"] == "out of reach", seen  # the browser shows a page of its own there
    page.context.close()
    assert scene.topics() == before


def test_a_name_that_was_made_to_point_here_is_no_name_of_the_console(scene: Scene) -> None:
    """DNS rebinding: to the browser, the attacker's page and the console have one origin."""
    before = scene.topics()
    origin = f"http://{REBOUND}:{scene.port}"
    page = scene.open(origin)
    expect(page.locator("body")).to_contain_text("403")
    seen = page.evaluate(ATTACKS, [origin, "rebound"])
    assert "orders" not in seen["read"], seen
    assert (seen["write"], seen["events"]) == ("403", "refused"), seen
    page.context.close()
    assert scene.topics() == before


def test_a_login_comes_back_from_another_site(scene: Scene) -> None:
    """The provider is another site to the browser, so the session's cookie, which is SameSite=Strict, is not sent with
    the redirect from there. The page that it leads to asks for everything itself."""
    provider = OidcProvider()
    listener = listen_on("127.0.0.1", 0, name="console")
    url = f"http://localhost:{listener.getsockname()[1]}"
    oidc = OidcSettings(
        issuer=provider.issuer,
        client_id=CLIENT_ID,
        client_secret=SECRET,
        roles=(("kafka-admins", Role.VIEWER),),
        url=url,
    )
    settings = ConsoleSettings(bootstrap_servers=scene.node.bootstrap_servers, oidc=oidc)
    console = ConsoleServer(settings, listener)
    try:
        page = scene.open(f"{url}/#/topics/orders")
        sent = []
        page.on("request", lambda request: sent.append(request))
        page.get_by_role("link", name="Log in").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("orders")
        expect(page.get_by_role("complementary").first).to_contain_text("viewer")
        (session,) = [one for one in page.context.cookies() if one["name"].endswith("-session")]
        assert (session["sameSite"], session["httpOnly"], session["domain"]) == ("Strict", True, "localhost")
        (back,) = [one for one in sent if "/login/callback" in one.url]
        assert "-login=" in back.all_headers()["cookie"]
        # A link on another site leads to the page, and not around the role.
        page.goto(f"{provider.issuer}/end")
        page.evaluate("to => { location.href = to }", f"{url}/#/groups")
        expect(page.get_by_role("heading", level=1)).to_have_text("Groups")
        refused = page.evaluate(
            """async () => (await fetch('/api/v1/topics', { method: 'POST', body: '{"name": "x"}',
               headers: { 'Content-Type': 'application/json' } })).status"""
        )
        assert refused == 403
        page.context.close()
    finally:
        console.stop()
        provider.stop()


def test_values_that_attack_are_text(scene: Scene) -> None:
    """Through the real API; names of topics cannot hold markup, but those of groups, headers and fields can."""
    value = json.dumps({HOSTILE: HOSTILE, "__proto__": {"polluted": True}}).encode()
    headers = ((HOSTILE, HOSTILE.encode()), ("null", None))
    attacks = [
        OutgoingRecord(key=HOSTILE.encode(), value=value, headers=headers),
        OutgoingRecord(key=None, value=HOSTILE.encode()),
        OutgoingRecord(key=b"\xff\x00", value=b"\x1b]0;owned\x07\xe2\x80\xae"),
    ]
    for one in attacks:
        produce(scene.client, "orders", [one])
    scene.client.offset_commit(HOSTILE, {("orders", 0): (0, HOSTILE)})
    wait_until(lambda: HOSTILE in scene.console.console.model.groups, 60, "the group to be known")
    page = scene.open(f"{scene.console.url}/#/topics/orders/records?at=0:0")
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    page.on("dialog", lambda dialog: wrong.append(dialog.message))
    expect(page.get_by_role("complementary", name="Record")).to_contain_text("<script>")
    expect(page.get_by_role("table", name="Headers")).to_contain_text(HOSTILE)
    for target, text in (
        ("#/topics/orders/records?at=0:1", HOSTILE),
        ("#/topics/orders/groups", HOSTILE),
        ("#/groups", HOSTILE),
        (f"#/groups/{quote(HOSTILE, safe='')}", HOSTILE),
        ("#/schemas/orders-value", "<script>"),
        (f"#/topics/orders/records?filter={quote(HOSTILE)}", "filter"),
    ):
        page.evaluate("hash => { location.hash = hash }", target)
        expect(page.locator("main")).to_contain_text(text)
        assert page.locator("img, main script, iframe, object, [href^=javascript]").count() == 0
        assert page.evaluate("({}).polluted === undefined && !document.title.startsWith('owned')")
    page.context.close()
    assert [one for one in wrong if "status of 4" not in one] == []
