"""The catalog: strict reading of plugin.toml, with the words of every refusal."""

from pathlib import Path

import pytest

from pih import catalog
from pih_runtime.errors import ResolutionError

ROOT = Path(__file__).parents[3]
GOOD = """\
id = "memory/paged"
version = "0.1.0"
kind = "memory"
abi = 1
summary = "pages"

[provides]
"memory.pages" = "1.0"

[requires]
"backend.device" = ">=1.0,<2"

[runtime]
package = "pih_memory"
entry = "pih_memory:start"
"""


@pytest.fixture
def load(tmp_path):
    def write_and_load(text):
        path = tmp_path / "plugins" / "memory" / "paged" / "plugin.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return catalog.load(tmp_path)

    return write_and_load


def test_a_manifest_becomes_data(load):
    (plugin,) = load(GOOD).plugins
    assert plugin.requires == {"backend.device": ">=1.0,<2"}
    assert plugin.runtime.wheels == ()
    assert plugin.permissions.network == "none"


def test_the_built_in_catalog_is_sound():
    found = catalog.load(ROOT)
    ids = [plugin.id for plugin in found.plugins]
    assert ids == sorted(ids)
    assert {"backend/cpu", "kernels/cpu", "model/llama", "model/qwen3", "surface/openai"} <= set(ids)
    provided = {name for plugin in found.plugins for name in plugin.provides}
    assert provided == set(catalog.CAPABILITIES)


def test_built_in_packages_and_entries_are_there():
    for plugin in catalog.load(ROOT).plugins:
        for half in (plugin.runtime, plugin.build):
            if half is not None:
                assert half.entry.startswith(f"{half.package}:")
                assert (ROOT / "plugins" / plugin.id / half.package / "__init__.py").is_file()


def test_the_digest_leaves_out_comments_and_order(load):
    def digest(text):
        return catalog.fingerprint(load(text).plugins[0])

    first = digest(GOOD)
    assert digest("# a comment\n" + GOOD.replace('abi = 1\nsummary = "pages"', 'summary = "all"\nabi = 1')) == first
    assert digest(GOOD.replace('"1.0"', '"1.1"')) != first


MESSAGES = {
    "unknown key": (
        ("abi = 1", "abi = 1\nsumary = 2"),
        (
            "5: sumary: unknown key\n"
            '  to fix: did you mean "summary"? known keys: id, version, kind, abi, summary, provides, requires, '
            "optional, conflicts, licence, yanked, target, "
            "runtime, build, permissions, report, tested"
        ),
    ),
    "missing key": (('version = "0.1.0"\n', ""), "1: version: missing\n  to fix: add version"),
    "another folder's id": (
        ("memory/paged", "memory/pagd"),
        '1: id: "memory/pagd" lies in plugins/memory/paged\n  to fix: write id = "memory/paged"',
    ),
    "another folder's kind": (
        ('kind = "memory"', 'kind = "model"'),
        '3: kind: "model" is not the kind in "memory/paged"\n  to fix: let them agree',
    ),
    "unknown kind": (
        ('kind = "memory"', 'kind = "memry"'),
        (
            '3: kind: "memry" is not allowed\n  to fix: did you mean "memory"? allowed: "platform", "storage", '
            '"backend", '
            '"kernels", "memory", "transport", "model", "execution", "surface" or "health"'
        ),
    ),
    "another ABI": (
        ("abi = 1", "abi = 2"),
        "4: abi: ABI 2 is not this PIH's ABI 1\n  to fix: use the plugin's release for this PIH",
    ),
    "not a version": (
        ('version = "0.1.0"', 'version = "new"'),
        '2: version: "new" is not a version\n  to fix: write it like "1.0"',
    ),
    "not a provided version": (
        ('"1.0"', '"one"'),
        '8: provides.memory.pages: "one" is not a version\n  to fix: write it like "1.0"',
    ),
    "unknown capability": (
        ('"memory.pages"', '"memory.page"'),
        (
            '8: provides.memory.page: "memory.page" is not allowed\n  to fix: did you mean "memory.pages"? allowed: '
            '"backend.device", "backend.graphs", "execution.engine", "health.probe", "kernels.cubin", "kernels.pack", '
            '"memory.pages", '
            '"model.decoder", "model.text", "platform.host", "storage.weights", "surface.http" or '
            '"transport.collectives"; one of your '
            'own begins with your name: "acme.fabric"'
        ),
    ),
    "not a specifier": (
        ('">=1.0,<2"', '"1.0 or so"'),
        '11: requires.backend.device: "1.0 or so" is not a version specifier\n  to fix: write it like ">=1.0,<2"',
    ),
    "not an entry": (
        ("pih_memory:start", "pih_memory.start"),
        '15: runtime.entry: "pih_memory.start" is not allowed\n  to fix: write it like "pih_backend_cpu:start"',
    ),
    "a package that is a path": (
        ('"pih_memory"', '"../pih_memory"'),
        '14: runtime.package: "../pih_memory" is not allowed\n  to fix: write it like "pih_backend_cpu"',
    ),
    "unknown op": (
        (
            "[runtime]",
            (
                '[[report.kernel]]\nop = "liner"\nweight = ""\nlayout = ""\nactivation = ""\nisa = []\nsource = ""\n'
                'template = ""\nconstants = []\nprecision = ""\nmode = "f32"\n[runtime]'
            ),
        ),
        (
            '14: report.kernel[0].op: "liner" is not allowed\n  to fix: did you mean "linear"? allowed: "embed", '
            '"rms_norm", "quantize", "linear", "rope_table", "rope", "kv_write", "attention", "silu_mul", "add", '
            '"gather" or "sample"'
        ),
    ),
    "a source that is not the plugin's": (
        (
            "[runtime]",
            (
                '[[report.kernel]]\nop = "add"\nweight = ""\nlayout = ""\nactivation = ""\nisa = []\n'
                'source = "../other/add.h"\ntemplate = ""\nconstants = []\nprecision = ""\nmode = "f32"\n[runtime]'
            ),
        ),
        '19: report.kernel[0].source: "../other/add.h" is not allowed\n  to fix: write it like "attention.h"',
    ),
}


@pytest.mark.parametrize("name", ["acme.fabric", "acme-ai.fabric_v2.links", "intel.amx"])
def test_vendors_may_name_capabilities_of_their_own(load, name):
    (plugin,) = load(GOOD.replace('"memory.pages"', f'"{name}"')).plugins
    assert plugin.provides == {name: "1.0"}


@pytest.mark.parametrize(
    "name",
    ["fabric", "memory.fabric", "pih.fabric", "memroy.pages", "transports.x", "Acme.fabric", "acme.", "acme.a.b.c.d"],
)
def test_but_not_beside_pih_s_own(load, name):
    with pytest.raises(ResolutionError, match="one of your own begins with your name"):
        load(GOOD.replace('"memory.pages"', f'"{name}"'))


def test_variables_of_the_environment_are_asked_for_by_name(load):
    (plugin,) = load(GOOD + '[permissions]\nenvironment = ["NPU_VISIBLE_DEVICES"]\n').plugins
    assert plugin.permissions.environment == ("NPU_VISIBLE_DEVICES",)


@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "PYTHONPATH", "PATH", "LC_ALL", "GLIBC_TUNABLES", "PIH_STORE", "npu", "A=B", ""]
)
def test_variables_that_direct_the_worker_itself_are_refused(load, name):
    with pytest.raises(ResolutionError, match=r"permissions\.environment: ") as caught:
        load(GOOD + f'[permissions]\nenvironment = ["{name}"]\n')
    assert 'e.g. "NPU_VISIBLE_DEVICES"' in caught.value.fix


@pytest.mark.parametrize("path", ["/srv/x", "/", "/device/x", "/**"])
def test_a_device_lies_below_dev(load, path):
    with pytest.raises(ResolutionError, match=r":18: permissions\.devices: .* which is no path below /dev") as caught:
        load(GOOD + f'[permissions]\nnetwork = "none"\ndevices = ["{path}"]\n')
    assert '"/dev/npu*"' in caught.value.fix


@pytest.mark.parametrize("case", MESSAGES)
def test_a_refusal_names_file_line_key_and_cure(load, case):
    change, message = MESSAGES[case]
    assert change[0] in GOOD
    with pytest.raises(ResolutionError) as caught:
        load(GOOD.replace(*change, 1))
    assert str(caught.value) == f"plugins/memory/paged/plugin.toml:{message}"


@pytest.mark.parametrize(
    ("text", "words"),
    [("id = ", "Invalid value"), ("id = " + "1" * 5000, "a number of thousands"), ("id = " + "[" * 5000, "nested too")],
)
def test_a_file_that_is_not_toml(load, text, words):
    with pytest.raises(ResolutionError, match=f"not TOML: {words}"):
        load(text)


def test_a_tree_without_plugins(tmp_path):
    with pytest.raises(ResolutionError, match="no plugins found"):
        catalog.load(tmp_path)
