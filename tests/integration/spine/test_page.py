"""`pih inspect --html`: the page in a browser, as people use it."""

import json
from pathlib import Path

import pytest

from pih.inspect import causes, why
from pih.inspect.opened import opened
from tests.support.program import pih

LIBRARY = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30"


def texts(page, selector):
    return page.locator(selector).all_inner_texts()


def labels(page, selector="#map .cell"):
    """What a screen reader says of each part of the map."""
    return [one.get_attribute("aria-label") for one in page.locator(selector).all()]


def find(page, words):
    page.fill("#search", words)
    return texts(page, "#panel tbody th")


def accent(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_it_says_what_the_program_says(shown, image):
    page = shown()
    described = json.loads(pih("inspect", image["layout"], "--json").stdout)
    assert page.title() == f"{described['identity']['name']} — PIH bundle"
    whole = page.inner_text("main")
    for name in ("digest", "config", "content", "lock", "reference"):
        assert described["identity"][name] in whole
    counts = {text.split()[-1]: text for text in texts(page, "#tabs button")}
    assert f"Files {len(described['files'])}" in counts.values()
    for tab, key, field in (
        ("components", "components", "name"),
        ("ops", "bindings", "op"),
        ("artifacts", "artifacts", "name"),
        ("plugins", "plugins", "id"),
    ):
        page.click(f"#tab-{tab}")
        assert texts(page, "#panel tbody th") == [row[field] for row in described[key]]
    licences = {row["licence"] for row in described["components"]}
    assert licences <= set(texts(page, ".rows .name"))
    for layer in described["layers"]:
        assert layer["name"] in texts(page, ".keys .name")


def test_the_map_opens_layer_component_folder_and_file(shown):
    page = shown()
    assert {label.split(",")[0] for label in labels(page)} == {"base", "wheels", "app", "deployment"}
    assert "are left out of the map" in page.inner_text("#left-out")
    for name in ("base", "libstdc++6", "usr/", "lib/x86_64-linux-gnu/"):
        page.click(f'#map .cell[aria-label^="{name},"]')
        assert page.inner_text("#crumbs [aria-current]") == name
    page.click('#map .cell[aria-label^="libstdc++.so.6.0.30, file,"]')
    assert page.inner_text("#why h2") == "libstdc++.so.6.0.30"
    page.click("#crumbs button >> nth=0")
    assert len(labels(page)) == 4


def test_areas_are_sizes(shown, image):
    page = shown()
    described = json.loads(pih("inspect", image["layout"], "--json").stdout)
    sizes = {layer["name"]: layer["size"] for layer in described["layers"] if layer["name"] != "weights"}
    boxes = {
        one.get_attribute("aria-label").split(",")[0]: one.bounding_box() for one in page.locator("#map .cell").all()
    }
    # a cell has a gap of three pixels around it
    areas = {name: (box["width"] + 3) * (box["height"] + 3) for name, box in boxes.items()}
    for name, size in sizes.items():
        assert areas[name] / sum(areas.values()) == pytest.approx(size / sum(sizes.values()), abs=0.002)


def test_weights_and_shipped_sizes_can_be_had(shown):
    page = shown()
    page.check("#weights")
    assert labels(page)[0].startswith("weights, layer, 96.6 MB, 73.0 % of")
    page.click('#measures label:has-text("Shipped")')
    assert labels(page)[0].startswith("weights, layer, 96.6 MB, 87.7 % of")
    assert page.locator("#left-out").is_hidden()


def test_the_keyboard_alone_reaches_a_file_and_comes_back(shown):
    page = shown()
    page.focus('#map .cell[tabindex="0"]')
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("wheels,")
    page.keyboard.press("Enter")
    assert page.inner_text("#crumbs [aria-current]") == "wheels"
    assert "wheels, 10.3 MB" in page.inner_text("#said")
    page.keyboard.press("Enter")  # the largest component has the focus
    assert page.inner_text("#crumbs [aria-current]") == "tokenizers"
    page.keyboard.press("Escape")
    page.keyboard.press("End")
    page.keyboard.press("Home")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("tokenizers,")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    assert page.inner_text("#crumbs [aria-current]") == "smollm2-cpu"
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("wheels,")


def test_each_level_is_a_table_too(shown):
    page = shown()
    page.click("#level summary")
    rows = texts(page, "#level tbody tr")
    assert len(rows) == len(labels(page))
    page.click("#level tbody button >> nth=0")
    assert page.inner_text("#crumbs [aria-current]") == "base"
    assert page.inner_text("#level tbody tr >> nth=0").split("\t") == ["python3.11-minimal", "6.9 MB", "29.6 %", "4"]


def test_search_filters_and_heads_sort(shown):
    page = shown()
    assert find(page, "libstdc++.so.6.0") == [LIBRARY]
    assert page.inner_text("#count").startswith("1 of ")
    assert find(page, "nothing is called so") == []
    found = find(page, "TOKENIZERS wheels")
    assert found
    assert all("/tokenizers" in path for path in found)
    page.fill("#search", "")
    page.click("#panel thead button >> text=Size")
    assert texts(page, "#panel tbody th")[0] == "/pih/weights/weights.safetensors"
    assert page.locator('#panel [aria-sort="descending"]').inner_text().strip() == "Size"
    page.click("#panel thead button >> text=Size")
    assert page.locator('#panel [aria-sort="ascending"]').count() == 1
    page.click("#panel thead button >> text=Path")
    paths = texts(page, "#panel tbody th")
    assert paths == sorted(paths, key=paths.index)
    assert paths[0] == "/bin → usr/bin"


def test_a_files_reasons_are_marked_in_both_views(shown, image):
    page = shown()
    assert find(page, LIBRARY) == [LIBRARY]
    page.click("#panel tbody button")
    told = json.loads(pih("why", LIBRARY, image["layout"], "--json").stdout)["answers"][0]
    assert texts(page, "#why > .chain li") == told["chains"][0]
    marked = texts(page, "#graph .node.on")
    assert "model/text" in marked
    assert "model.text" in marked
    assert marked[-1].startswith("libstdc++.so.6")
    assert texts(page, "#graph .node.of") == ["libstdc++6"]
    assert page.locator("#graph path.on").count() >= 6
    chosen = page.locator('#map .chosen[aria-label^="libstdc++6, component"]')
    assert chosen.count() == 1
    assert page.locator('#legend button[aria-pressed="true"]').inner_text().startswith("libstdc++6")
    page.keyboard.press("Escape")
    assert page.locator("#graph .on, #map .chosen, #map .apart, #panel tr.on").count() == 0


def test_a_plugin_of_the_graph_is_found_in_the_map(shown, image):
    page = shown()
    page.click('#graph .node.plugin:text-is("model/text")')
    told = json.loads(pih("why", "model/text", image["layout"], "--json").stdout)["answers"][0]
    assert texts(page, "#why > .chain li") == told["chains"][0]
    page.click("#why details summary")
    assert {
        tuple(one.all_inner_texts())
        for one in [
            page.locator("#why .chain").nth(index).locator("li") for index in range(page.locator("#why .chain").count())
        ]
    } == {tuple(chain) for chain in told["chains"]}
    assert page.locator("#map .part.chosen").count() >= 1
    page.click('#map .cell[aria-label^="app,"]')
    assert [label.split(",")[0] for label in labels(page, "#map .cell.chosen")] == ["model/text"]


def test_every_chain_is_the_one_that_why_gives(shown, image):
    """The page follows causes by a program of its own: of each sort of thing, some of each table."""
    held = opened(Path(image["layout"]))
    graph = causes.of_contents(causes.of_lock(held.lock), held.contents)
    page = shown()
    kinds = {"files": "file", "ops": "kernel", "artifacts": "artifact", "plugins": "plugin"}
    for tab, kind in kinds.items():
        page.click(f"#tab-{tab}")
        buttons = page.locator("#panel tbody button")
        for index in range(0, buttons.count(), max(1, buttons.count() // 12)):
            buttons.nth(index).click()
            name = (
                page.locator("#panel tr.on td >> nth=2").inner_text()
                if kind == "kernel"
                else buttons.nth(index).inner_text()
            )
            wanted, _ = why.chains(graph, (kind, name.partition(" → ")[0]))
            shown_chains = [
                page.locator("#why .chain").nth(at).locator("li").all_text_contents()
                for at in range(page.locator("#why .chain").count())
            ]
            assert [len(chain) for chain in shown_chains] == [len(chain) for chain in wanted[: len(shown_chains)]], name
            assert {tuple(chain) for chain in shown_chains} <= set(wanted), name
            assert len(shown_chains) == min(len(wanted), 12), name
            buttons.nth(index).click()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_follow_the_system_and_the_switch(shown, scheme):
    page = shown(color_scheme=scheme)
    own = accent(page)
    other = "dark" if scheme == "light" else "light"
    page.click(f'#theme label:has-text("{other}")')
    assert accent(page) != own
    page.click('#theme label:has-text("auto")')
    assert accent(page) == own


@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("light", 1440), ("dark", 1440)])
def test_accessible_by_the_rules_of_axe(shown, scheme, width):
    from axe_playwright_python.sync_playwright import Axe

    page = shown(color_scheme=scheme, viewport={"width": width, "height": 900}, reduced_motion="reduce")
    find(page, "lib/x86_64-linux-gnu")  # the rules read every cell of a table, and cells are all alike
    for step in ("#level summary", "#map .cell >> nth=0", "#panel tbody button >> nth=4", "#tab-ops"):
        page.click(step)
        found = Axe().run(page).response["violations"]
        assert [(one["id"], [node["target"] for node in one["nodes"]][:5]) for one in found] == []


def test_a_phone_scrolls_in_one_direction(shown):
    page = shown(viewport={"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    find(page, LIBRARY)
    page.click("#panel tbody button")
    box = page.locator("#why").bounding_box()
    assert box["y"] + box["height"] == pytest.approx(800, abs=1)
    page.click("#why .close")
    assert page.locator("#why").is_hidden()


def test_paper_has_the_facts_and_no_controls(shown):
    page = shown()
    page.emulate_media(media="print")
    assert page.locator(".top").is_hidden()
    assert page.locator("#map").is_visible()
    assert page.evaluate(
        "document.getElementById('panel').scrollHeight <= document.getElementById('panel').clientHeight + 1"
    )


@pytest.mark.parametrize("profile", ["smollm2-cpu", "qwen3-cpu-synthetic"])
def test_the_page_is_smaller_than_a_megabyte(profile, tmp_path):
    path = tmp_path / "page.html"
    pih("inspect", "--profile", f"profiles/{profile}.toml", "--html", path)
    assert 100_000 < path.stat().st_size < 1_000_000
    assert list(tmp_path.iterdir()) == [path]


def test_the_same_bundle_gives_the_same_page(image, written, tmp_path):
    pih("inspect", image["layout"], "--html", tmp_path / "again.html")
    assert (tmp_path / "again.html").read_bytes() == written.read_bytes()


def test_a_folder_that_is_not_there(image, tmp_path):
    run = pih("inspect", image["layout"], "--html", tmp_path / "none/page.html", check=False)
    assert run.returncode == 2
    assert "Traceback" not in run.stderr
