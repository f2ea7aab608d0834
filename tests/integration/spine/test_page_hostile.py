"""`pih inspect --html`: the page of a bundle that was made to do harm."""

import json
import re

import attrs
import pytest

from pih import lock as locks
from pih.inspect import report
from pih.inspect.bundle import Contents, File, Layer
from pih.inspect.opened import Opened
from tests.support.program import ROOT

PAYLOADS = [
    "<script>window.harm=1</script>",
    "</script><script>window.harm=2</script>",
    "<!--<script>",
    "]]>--!><img src=x onerror=window.harm=3>",
    "\"'`><svg onload=window.harm=4>",
    "javascript:window.harm=5",
    "${window.harm=6}{{window.harm=7}}",
    "a\u202egpj.exe\u2066\u200f\ufeff",
    "line\nbreak\r\x00\x1b[31m\u2028\u2029",
    "__proto__",
    "constructor",
    "\ud800lone",
    "x" * 5000,
]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Every text that a bundle brings, replaced by what a browser should not believe."""
    lock = locks.read(ROOT / "profiles/smollm2-cpu.lock.json")
    texts = iter(PAYLOADS * 1000)
    plugins = tuple(
        attrs.evolve(plugin, licence=next(texts), source=next(texts), trust=next(texts)) for plugin in lock.plugins
    )
    artifacts = tuple(
        attrs.evolve(artifact, version=next(texts), licence=next(texts), purls=(next(texts),))
        for artifact in lock.artifacts
    )
    bindings = tuple(
        attrs.evolve(binding, op=next(texts), precision=next(texts), symbol=next(texts)) for binding in lock.bindings
    )
    service = attrs.evolve(lock.service, model_name=PAYLOADS[1], host=PAYLOADS[4])
    lock = attrs.evolve(
        lock, plugins=plugins, artifacts=artifacts, bindings=bindings, service=service, fallbacks=tuple(PAYLOADS)
    )
    files = tuple(
        File(f"/{path}/{name}", 1000 + index, f"sha256:{text}", "", text, reason, layer)
        for index, (path, name, text, reason) in enumerate(
            zip(PAYLOADS, reversed(PAYLOADS), PAYLOADS, PAYLOADS, strict=True)
        )
        for layer in PAYLOADS
    )
    layers = tuple(Layer(name, name, sum(file.size for file in files if file.layer == name), 10) for name in PAYLOADS)
    held = Opened(
        Contents(PAYLOADS[1], PAYLOADS[0], "", PAYLOADS[4], layers, files, PAYLOADS[2], "", PAYLOADS[3]), lock
    )
    path = tmp_path_factory.mktemp("hostile") / "page.html"
    path.write_text(report.page(held))
    return path


def test_a_hostile_bundle_injects_nothing(shown, hostile):
    page = shown(hostile)
    for tab in ("files", "components", "ops", "artifacts", "plugins"):
        page.click(f"#tab-{tab}")
        buttons = page.locator("#panel tbody button")
        if buttons.count():
            buttons.first.click()
    while page.locator("#map .cell").count() and not page.locator('#map .cell[aria-pressed="true"]').count():
        page.locator("#map .cell").first.click()
    page.hover("#map .cell >> nth=0")
    assert page.evaluate("window.harm") is None
    assert page.locator("script").count() == 2
    assert page.locator("main img, main svg[onload], main script").count() == 0
    assert page.evaluate("Object.prototype.component === undefined && ({}).size === undefined")
    whole = page.evaluate("document.body.innerText")
    assert "</script><script>window.harm=2</script>" in whole
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200f]", whole)
    assert "\\u202e" in whole


def test_the_page_holds_what_no_browser_reads_as_markup(hostile):
    text = hostile.read_text()
    data = text.partition('<script type="application/json" id="data">')[2].partition("</script>")[0]
    assert json.loads(data)["identity"]["name"] == PAYLOADS[1]
    assert not set("<>&") & set(data)
    assert text.count("<script") == 2


def test_the_policy_runs_no_other_script(chromium, written):
    """Whatever came in all the same would not run, and nothing would be loaded for it."""
    context = chromium.new_context()
    page = context.new_page()
    page.goto(written.as_uri())
    refused = page.evaluate(
        """async () => {
          const refused = [];
          document.addEventListener("securitypolicyviolation", (event) => refused.push(event.effectiveDirective));
          const script = document.createElement("script");
          script.textContent = "window.harm = 1";
          const picture = document.createElement("img");
          picture.src = "http://127.0.0.1:9/x.png";
          picture.setAttribute("onerror", "window.harm = 2");
          document.body.append(script, picture);
          await fetch("http://127.0.0.1:9/").catch(() => null);
          await new Promise((resolve) => setTimeout(resolve, 300));
          return [...refused, window.harm ?? "no harm"];
        }"""
    )
    context.close()
    assert {"script-src-elem", "img-src", "connect-src"} <= set(refused)
    assert refused[-1] == "no harm"
