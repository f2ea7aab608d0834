"""`pih size`: real sizes against a budget's file."""

import json

import pytest

from tests.support.program import ROOT, pih


def test_written_held_and_broken(layout_of, tmp_path):
    budget = tmp_path / "tiny.size.toml"
    pih("size", layout_of("first"), "--budget", budget, "--update")
    assert pih("size", layout_of("first"), "--budget", budget).stdout.count(" ok\n") > 30
    run = pih("size", layout_of("bf16"), "--budget", budget, check=False)
    assert run.returncode == 1
    over = [line for line in run.stdout.splitlines() if "OVER by" in line]
    assert [line.split("  ")[0] for line in over] == [
        "layer weights unpacked", "layer weights compressed", "component weights"
    ]  # fmt: skip
    assert "grew since the budget: weights +90.2 kB" in over[0]
    said = json.loads(pih("size", layout_of("bf16"), "--budget", budget, "--json", check=False).stdout)
    assert (said["ok"], len([row for row in said["budget"] if row["over"]])) == (False, 3)
    pih("size", layout_of("bf16"), "--budget", budget, "--update", "--headroom", "1%")
    assert 'headroom = "1%"' in budget.read_text()
    assert pih("size", layout_of("bf16"), "--budget", budget, "--json").returncode == 0


def test_sizes_alone(layout_of, profile_of):
    layers = json.loads(pih("inspect", layout_of("first"), "--json").stdout)["layers"]
    said = json.loads(pih("size", "--profile", profile_of("first"), "--json").stdout)
    assert said["unpacked"] == sum(layer["size"] for layer in layers)
    assert said["compressed"] == sum(layer["compressed"] for layer in layers)
    assert said["unpacked"] == sum(row["size"] for row in said["components"])
    shown = pih("size", layout_of("first")).stdout
    assert shown.startswith("layer ")
    assert "\ncomponent " in shown


def test_what_cannot_be_asked(layout_of, tmp_path):
    for arguments in (
        (),
        (layout_of("first"), "--update"),
        (layout_of("first"), "--headroom", "1%"),
        (layout_of("first"), "--budget", tmp_path / "none.toml"),
        (layout_of("first"), "--budget", tmp_path / "b.toml", "--update", "--headroom", "x"),
    ):
        run = pih("size", *arguments, check=False)
        assert (run.returncode, "Traceback" in run.stderr) == (2, False), arguments
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("budget", sorted((ROOT / "profiles/sizes").glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_profiles_keep_to_their_budgets(budget):
    """Grown on purpose: `pih size --profile … --budget … --update`, and commit what it wrote."""
    pih("size", "--profile", f"profiles/{budget.name}", "--budget", budget)
