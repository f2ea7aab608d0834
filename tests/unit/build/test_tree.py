"""Trees of any depth are walked and removed, and no link is followed."""

import os

import pytest

from pih.build import tree


def nest(root, depth):
    """`depth` folders in one another, deeper than any path can say; a file in the last."""
    descriptor = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    os.close(descriptor)


@pytest.mark.parametrize("depth", [0, 1, 1500, 5000])
def test_what_is_nested_deeply_is_removed(tmp_path, depth):
    root = tmp_path / "root"
    root.mkdir()
    nest(root, depth)
    (root / "beside").touch()
    (root / "closed").mkdir(mode=0)
    tree.remove(root)
    assert list(tmp_path.iterdir()) == []


def test_links_are_removed_and_what_they_lead_to_stays(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").touch()
    (tmp_path / "root").mkdir()
    (tmp_path / "root/link").symlink_to(tmp_path / "kept")
    (tmp_path / "alone").symlink_to(tmp_path / "kept")
    tree.remove(tmp_path / "root")
    tree.remove(tmp_path / "alone")
    tree.remove(tmp_path / "nothing")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept/file").exists()


def test_a_walk_is_deep_and_follows_no_link(tmp_path):
    nest(tmp_path, 1000)
    (tmp_path / "link").symlink_to(".")
    found = [entry.name for entry in tree.below(tmp_path)]
    assert sorted(found) == ["d"] * 1000 + ["file", "link"]
    tree.remove(tmp_path / "d")  # pytest itself cannot
