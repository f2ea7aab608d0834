"""The closure as a tree that fits 80 columns."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pih.inspect import tree
from pih.inspect.bundle import Contents, File, Layer, components

LINE = re.compile(r" *(\d+(?:\.\d)? [kMGT]?B) +\d+\.\d%  ")


def contents(sizes):
    """sizes: bytes by (layer, component, path)."""
    files = tuple(File(path, size, "sha256:0", "", component, "", layer) for (layer, component, path), size in sizes)
    names = dict.fromkeys(file.layer for file in files)
    layers = tuple(Layer(name, "", sum(file.size for file in files if file.layer == name), 1) for name in names)
    return Contents("toy", "", "", "", layers, files)


def drawn(held):
    return list(tree.lines(tree.tree(held, components(held, {"libc": ("2.36", "")}))))


def test_layers_in_their_order_components_and_files_by_size():
    held = contents(
        [
            (("base", "libc", "/lib/small"), 40_000),
            (("base", "libc", "/lib/large"), 60_000),
            (("base", "zlib", "/lib/z"), 900_000),
            (("weights", "weights", "/w"), 9_000_000),
        ]
    )
    assert drawn(held) == [
        " 10.0 MB 100.0%  toy (2 B shipped, 4 files)",
        "  1.0 MB  10.0%  ├─ base layer (1 B shipped, 3 files)",
        "  900 kB   9.0%  │  ├─ zlib",
        "  900 kB   9.0%  │  │  └─ /lib/z",
        "  100 kB   1.0%  │  └─ libc 2.36 (2 files)",
        " 60.0 kB   0.6%  │     ├─ /lib/large",
        " 40.0 kB   0.4%  │     └─ /lib/small",
        "  9.0 MB  90.0%  └─ weights layer (1 B shipped, 1 file)",
        "  9.0 MB  90.0%     └─ weights",
        "  9.0 MB  90.0%        └─ /w",
    ]


def test_small_files_are_counted():
    held = contents([(("app", "a", f"/f{index:02}"), 1000) for index in range(60)] + [(("app", "a", "/big"), 90_000)])
    assert drawn(held)[2:] == [
        "  150 kB 100.0%     └─ a (61 files)",
        " 90.0 kB  60.0%        ├─ /big",
        " 60.0 kB  40.0%        └─ 60 more files",
    ]


NAMES = st.text(min_size=1, max_size=120)


@given(st.dictionaries(st.tuples(st.sampled_from("abc"), NAMES, NAMES), st.integers(0, 10**13), min_size=1))
def test_every_line_fits_and_nothing_is_lost(sizes):
    held = contents(sizes.items())
    root = tree.tree(held, components(held, {}))
    for line in tree.lines(root):
        assert len(line) <= 80
    for layer in root.below:
        assert layer.size == sum(part.size for part in layer.below)
        for part in layer.below:
            assert not part.below or sum(leaf.files for leaf in part.below) == part.files


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (99_949, "99.9 kB"), (99_950, "100 kB"), (999_499, "999 kB"),
     (999_500, "1.0 MB"), (1_192_272_064, "1.2 GB"), (10**15, "1000 TB")],
)  # fmt: skip
def test_amounts_read_well(count, text):
    assert tree.amount(count) == text
