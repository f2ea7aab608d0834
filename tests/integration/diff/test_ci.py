"""The CI files of docs/ci: they parse, and their commands do what the page says, run as a forge runs them."""

import os
import shutil
import subprocess

import pytest
import yaml

from tests.support.program import ROOT, pih

CI = ROOT / "docs" / "ci"
GITHUB, GITLAB = (yaml.safe_load((CI / f"{name}.yml").read_text()) for name in ("github", "gitlab"))
COMPARE, COMMENT = (GITHUB["jobs"][name] for name in ("compare", "comment"))
STEPS = {step["name"]: step for job in (COMPARE, COMMENT) for step in job["steps"] if "name" in step}
FAKE = """#!/bin/sh
printf '%s\\n' "$0" "$@" >"$SEEN"
"""


def test_what_a_forge_fills_in_is_never_code():
    for step in STEPS.values():
        assert "${{" not in step["run"]
    assert GITHUB[True] == "pull_request"  # `on`, which YAML 1.1 reads as a truth value


def test_what_runs_a_pull_requests_code_may_write_nothing():
    assert COMPARE["permissions"] == {"contents": "read"}
    assert COMMENT["permissions"] == {"pull-requests": "write"}
    assert [step["uses"].partition("@")[0] for step in COMMENT["steps"] if "uses" in step] == [
        "actions/download-artifact"
    ]


def test_both_forges_build_on_the_system_whose_packages_images_hold():
    """Git comes before the checkout, which brings no history without it; a container's steps are run by sh."""
    job = GITLAB["bundle"]
    assert COMPARE["container"] == job["image"] == "debian:bookworm"
    packages = STEPS["Packages"]["run"].splitlines()
    assert COMPARE["steps"].index(STEPS["Packages"]) == 0
    assert [line.replace(" curl", "") for line in job["before_script"]] == packages  # GitLab's job comments by curl
    assert COMPARE["defaults"] == {"run": {"shell": "bash"}}


def test_the_page_shows_what_is_there():
    page = (ROOT / "docs" / "howto" / "compare-in-ci.md").read_text()
    for path in CI.iterdir():
        assert f"(../ci/{path.name})" in page


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """This source tree as a repository: `origin/main`, `origin/less` without a plugin, and a change checked out."""
    folder = tmp_path_factory.mktemp("ci") / "pih"
    names = ("pih", "docs", "kernels", "models", "plugins", "profiles", "requirements", "resolver", "runtime")
    for name in names:
        source = ROOT / name
        ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=ignored)
        else:
            folder.mkdir(exist_ok=True)
            shutil.copy(source, folder / name)
    shutil.copy(ROOT / ".gitignore", folder)

    def git(*arguments):
        who = ("-c", "user.name=x", "-c", "user.email=x@example.com")
        return subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout

    def changed(old, new, name):
        path = folder / profile
        path.write_text(path.read_text().replace(old, new))
        subprocess.run([folder / "pih", "lock", "--profile", profile], cwd=folder, check=True, capture_output=True)
        git("commit", "--quiet", "-a", "-m", name)

    profile = GITHUB["env"]["PROFILE"]
    pih("size", "--profile", profile, "--budget", folder / GITHUB["env"]["BUDGET"], "--update")
    git("init", "--quiet")
    git("add", "-A")
    git("commit", "--quiet", "-m", "base")
    git("update-ref", "refs/remotes/origin/main", "HEAD")
    changed("health = true", "health = false", "less")
    git("update-ref", "refs/remotes/origin/less", "HEAD")
    git("reset", "--quiet", "--hard", "HEAD~1")
    changed("context = 2048", "context = 1024", "shorter")
    return folder


def run(repository, command, variables, tmp_path, *, code=0):
    """A command as the forge's shell runs it; programs that talk to the forge only tell what they were asked."""
    fakes = tmp_path / "bin"
    fakes.mkdir(exist_ok=True)
    for name in ("gh", "curl"):
        (fakes / name).write_text(FAKE)
        (fakes / name).chmod(0o755)
    environment = {**os.environ, **variables, "SEEN": str(tmp_path / "seen"), "PATH": f"{fakes}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", command],
        cwd=repository, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stdout


def test_github(repository, tmp_path):
    variables = {**GITHUB["env"], "GITHUB_BASE_REF": "main", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}
    variables |= {"NUMBER": "7", "GH_TOKEN": "x", "GITHUB_WORKSPACE": str(repository)}
    variables |= {"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1", "GIT_CONFIG_GLOBAL": str(tmp_path / "gitconfig")}
    steps = {name: step["run"] for name, step in STEPS.items() if name != "Packages"}
    texts = {name: run(repository, step, variables, tmp_path) for name, step in steps.items()}
    assert not any(texts[name] for name in ("Decisions, in seconds, before anything is built", "Comment"))
    report = (repository / "report.md").read_text()
    assert report.startswith("### smollm2-cpu: ")
    assert "- Settings: limits.context 2048 → 1024." in report
    assert (tmp_path / "summary").read_text() == report
    asked = (tmp_path / "seen").read_text().split("\n")[1:-1]
    assert asked == ["pr", "comment", "7", "--body-file", "report.md", "--edit-last", "--create-if-none"]
    assert subprocess.run(
        ["git", "worktree", "list"], cwd=repository, capture_output=True, text=True, check=True
    ).stdout.count("\n") == 1  # fmt: skip


def test_gitlab(repository, tmp_path):
    base = subprocess.run(
        ["git", "rev-parse", "origin/main"], cwd=repository, capture_output=True, text=True, check=True
    ).stdout.strip()
    job = GITLAB["bundle"]
    variables = {key: value for key, value in job["variables"].items() if key != "PIH_STORE"}
    variables |= {"CI_MERGE_REQUEST_DIFF_BASE_SHA": base, "CI_API_V4_URL": "http://forge/api/v4", "CI_PROJECT_ID": "3"}
    variables |= {"CI_MERGE_REQUEST_IID": "5", "COMMENT_TOKEN": "x"}
    assert all(command.startswith("apt-get ") for command in job["before_script"])
    (repository / "report.md").unlink(missing_ok=True)
    for command in [*job["script"], *job["after_script"]]:
        run(repository, command, variables, tmp_path)
    assert "- Settings: limits.context 2048 → 1024." in (repository / "report.md").read_text()
    asked = (tmp_path / "seen").read_text().split("\n")[1:-1]
    assert asked[-1] == "http://forge/api/v4/projects/3/merge_requests/5/notes"
    assert "body@report.md" in asked


def test_a_gate_that_does_not_hold_fails_the_step_and_leaves_the_report(repository, tmp_path):
    variables = {**GITHUB["env"], "GITHUB_BASE_REF": "less"}
    step = STEPS["Both images, compared"]["run"]
    run(repository, step, variables, tmp_path, code=1)
    report = (repository / "report.md").read_text()
    assert "**Gate tripped:** `--fail-on new-component`: health/probe is new" in report
    assert "New plugin health/probe 0.1.0 (+" in report


def test_a_gate_that_a_lock_does_not_hold_leaves_a_report_too(repository, tmp_path):
    """Nothing is built after it, and the comment has the reason."""
    (repository / "report.md").unlink(missing_ok=True)
    variables = {**GITHUB["env"], "GITHUB_BASE_REF": "less", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}
    step = STEPS["Decisions, in seconds, before anything is built"]["run"].replace("permission", "new-component")
    run(repository, step, variables, tmp_path, code=1)
    assert "health/probe is new" in (repository / "report.md").read_text()
    run(repository, STEPS["Comment"]["run"], variables | {"NUMBER": "7", "GH_TOKEN": "x"}, tmp_path)
    assert "health/probe is new" in (tmp_path / "summary").read_text()


@pytest.mark.parametrize("locks", ["", "--locks"])
def test_a_profile_by_any_path_is_the_same_profile(repository, tmp_path, locks):
    for path in (f"{repository}/profiles/smollm2-cpu.toml", "./profiles/../profiles/smollm2-cpu.toml"):
        gate = "--fail-on new-component"
        run(repository, f'docs/ci/compare.sh {locks} origin/less "{path}" new.md {gate}', {}, tmp_path, code=1)
        assert "health/probe is new" in (repository / "new.md").read_text()
    (repository / "new.md").unlink()
    run(repository, f"docs/ci/compare.sh {locks} HEAD /etc/x.toml new.md", {}, tmp_path, code=2)


@pytest.mark.parametrize("locks", ["", "--locks"])
def test_a_comparison_from_a_subfolder(repository, tmp_path, locks):
    command = f"cd profiles && ../docs/ci/compare.sh {locks} origin/less smollm2-cpu.toml {tmp_path}/new.md"
    run(repository, command, {}, tmp_path)
    assert "limits.context 2048 → 1024" in (tmp_path / "new.md").read_text()


def test_a_new_profile_has_its_sizes_told(repository, tmp_path):
    new = repository / "profiles" / "other.toml"
    for name in ("toml", "lock.json"):
        text = (repository / "profiles" / f"smollm2-cpu.{name}").read_text()
        new.with_name(f"other.{name}").write_text(text)
    subprocess.run([repository / "pih", "lock", "--profile", new], cwd=repository, check=True, capture_output=True)
    variables = {**GITHUB["env"], "PROFILE": "profiles/other.toml", "GITHUB_BASE_REF": "main"}
    run(repository, STEPS["Decisions, in seconds, before anything is built"]["run"], variables, tmp_path)
    assert (repository / "report.md").read_text() == "### profiles/other.lock.json is new\n"
    run(repository, "docs/ci/compare.sh origin/main profiles/other.toml new.md --max-growth 1B", {}, tmp_path)
    said = (repository / "new.md").read_text()
    assert said.startswith("### profiles/other.toml is new\n```\nlayer ")
    for path in (new, new.with_name("other.lock.json"), repository / "new.md"):
        path.unlink()


def test_a_base_that_is_not_there_and_no_arguments(tmp_path):
    """Neither needs a build, and nothing stays behind."""
    script = ROOT / "docs/ci/compare.sh"
    (tmp_path / "tmp").mkdir()
    subprocess.run(["git", "init", "--quiet", tmp_path / "clone"], check=True)
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    for arguments, words in (([], "usage: "), (["gone", "x.toml", "x.md"], "there is no commit gone")):
        run = subprocess.run(
            ["sh", script, *arguments],
            cwd=tmp_path / "clone",
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (run.returncode, words in run.stderr) == (2, True), run.stderr
    assert not list((tmp_path / "tmp").iterdir())
