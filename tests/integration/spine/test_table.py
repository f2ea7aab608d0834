"""What `pih build` says of an image's components."""

import json

from tests.support.program import PROFILE, pih


def test_sizes_of_components_add_up_to_what_is_shipped(image):
    layers = {row["name"]: row for row in json.loads(pih("inspect", image["layout"], "--json").stdout)["layers"]}
    shares = {row["name"]: row["compressed"] for row in image["components"]}
    assert sum(shares.values()) == sum(layer["compressed"] for layer in layers.values())
    assert sum(row["size"] for row in image["components"]) == sum(layer["size"] for layer in layers.values())
    assert 0 < shares["weights"] - layers["weights"]["compressed"] < 100_000  # the digests of its chunks lie in another
    assert all(shares.values())
    # a C library is half of what it was, whoever lies beside it
    libc = next(row for row in image["components"] if row["name"] == "libc6")
    assert 0.4 < libc["compressed"] / libc["size"] < 0.6


def test_the_table_has_both_sizes_and_a_reason(image):
    head, *rows = pih("build", "--profile", PROFILE).stdout.splitlines()
    assert head.split() == ["component", "version", "unpacked", "compressed", "reason"]
    row = next(line.split(maxsplit=4) for line in rows if line.startswith("tokenizers "))
    told = next(item for item in image["components"] if item["name"] == "tokenizers")
    assert row == [
        "tokenizers",
        told["version"],
        f"{told['size'] / 1e6:.2f}",
        f"{told['compressed'] / 1e6:.2f}",
        told["reason"].rpartition("→ ")[2],
    ]
    total = next(line for line in rows if line.startswith("total "))
    sums = [sum(item[key] for item in image["components"]) for key in ("size", "compressed")]
    assert total.split() == ["total", *(f"{value / 1e6:.2f}" for value in sums), "MB"]
