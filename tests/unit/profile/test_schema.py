"""The generated JSON Schema and reference page say what the reader does."""

import json
import tomllib
from pathlib import Path

import attrs
import jsonschema
import pytest
from packaging.version import Version

from pih import catalog
from pih.profile_schema import Intent
from pih.schema import json_schema, table_page

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads(json_schema(Intent, "profile"))
TEXT = (Path(__file__).parent / "example.toml").read_text()


def test_the_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", sorted((ROOT / "profiles").glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_profiles_follow_it(path):
    jsonschema.validate(tomllib.loads(path.read_text()), SCHEMA)


def test_the_examples_driver_is_one_that_the_plugins_take():
    floors = [Version(plugin.target.driver) for plugin in catalog.load(ROOT).plugins if plugin.target.driver]
    (example,) = SCHEMA["$defs"]["Device"]["properties"]["driver"]["examples"]
    assert floors
    assert Version(example) >= max(floors)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[limits]", "[limts]"),
        ("threads = 2\n", ""),
        ("threads = 2", 'threads = "2"'),
        ("threads = 2", "threads = 0"),
        ("openai = true", "openai = 1"),
        ('isa = "x86-64-v3"', 'isa = "x86-64v3"'),
        ('"512 MiB"', '"512MB"'),
        ("pypi:", "pipy:"),
    ],
)
def test_it_refuses_what_the_reader_refuses(old, new):
    jsonschema.validate(tomllib.loads(TEXT), SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tomllib.loads(TEXT.replace(old, new, 1)), SCHEMA)


def test_every_key_is_described_on_the_page():
    page = table_page(Intent)
    for table in attrs.fields(Intent):
        heading, kind = f"## [{table.name}]", table.name.capitalize()
        if table.name == "plugins":
            heading, kind = "## [[plugins]]", "PluginSource"
        assert heading in page
        for key in SCHEMA["$defs"][kind]["properties"].items():
            assert f"| `{key[0]}` |" in page
            assert key[1]["description"]
