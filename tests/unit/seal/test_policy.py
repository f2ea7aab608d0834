"""Policies: who must vouch, and until when."""

import datetime as dt

import pytest

from pih.seal import attach, policy, verify
from pih.trust import keys
from pih_runtime.errors import SealError, UsageError

NOW = dt.datetime(2026, 6, 1, tzinfo=dt.UTC)


def line(made, name):
    return keys.pem_body(keys.load_public(made / f"{name}.pem.pub"))


@pytest.fixture
def write(tmp_path):
    def to_file(text):
        path = tmp_path / "policy.toml"
        path.write_text(text)
        return path

    return to_file


def key(made, name, extra=""):
    return f'[[key]]\nname = "{name}"\npublic = "{line(made, name)}"\n{extra}\n'


@pytest.fixture
def both(made, tmp_path):
    """Sealed by a and b."""
    attach.seal(made / "sealed", tmp_path / "both", [keys.load_private(made / "b.pem")])
    return verify.whole(tmp_path / "both")


def test_enough_of_the_keys(made, write, both):
    text = "".join(key(made, name) for name in "abc")
    two = verify.vouched(both, policy.load(write("threshold = 2\n" + text)), NOW)
    assert [item.name for item in two.vouched] == ["a", "b"]
    with pytest.raises(SealError, match=r"has 2 of the 3 signatures that it needs; c \(ed25519:\w+\) did not sign"):
        verify.vouched(both, policy.load(write("threshold = 3\n" + text)), NOW)


@pytest.mark.parametrize(
    ("expires", "good"),
    [
        ("2026-06-02", True),
        ("2026-06-01", False),
        ("2026-06-01T00:00:01Z", True),
        ("2026-06-01T00:00:01+02:00", False),
        ("2026-06-01T00:00:01", True),
    ],
)
def test_an_expired_key_does_not_count(made, write, both, expires, good):
    wanted = policy.load(write(f"threshold = 2\n{key(made, 'a')}{key(made, 'b', f'expires = {expires}')}"))
    if good:
        assert len(verify.vouched(both, wanted, NOW).vouched) == 2
        return
    with pytest.raises(SealError, match=r"has 1 of the 2 signatures that it needs; b .* expired on 2026-0"):
        verify.vouched(both, wanted, NOW)


WRONG = {
    "": "threshold: missing",
    "threshold = 0\n{a}": r":1: threshold: 0 of 1 keys cannot sign",
    "threshold = 2\n{a}": r":1: threshold: 2 of 1 keys cannot sign",
    "threshold = true\n{a}": r":1: threshold: true is not a whole number",
    "threshold = 1\nkey = []": r":1: threshold: 1 of 0 keys cannot sign",
    "threshold = 1\ntreshold = 1\n{a}": r":2: treshold: unknown key",
    "threshold = 1\n{a}{a}": r":7: key\[1\].public: this key is here twice",
    'threshold = 1\n[[key]]\nname = "x"\npublic = "AAAA"': r":4: key\[0\].public: 44 bytes expected, not 3",
    'threshold = 1\n[[key]]\nname = "x"\npublic = "?"': r":4: key\[0\].public: ",
    "threshold = 1\n{a}expires = 2026-13-01": "not TOML",
    'threshold = 1\n{a}expires = "soon"': r":5: key\[0\].expires: ",
    "threshold = 1\n{a}expires = 12:00:00": r":5: key\[0\].expires: ",
    "threshold = 1\n{a}expires = 7": r":5: key\[0\].expires: 7 is not a string",
    "a." * 300 + "b = 1": "nested too deeply",
    "threshold = 1\nkey = " + "[" * 3000: "nested too deeply",
    "threshold = " + "1" * 5000: "not TOML: a number of thousands of digits is too long",
}


@pytest.mark.parametrize("text", WRONG, ids=lambda text: WRONG[text][:40])
def test_a_policy_that_is_not_right_is_refused_with_its_line(made, write, text):
    with pytest.raises(UsageError, match=WRONG[text]):
        policy.load(write(text.replace("{a}", key(made, "a").rstrip("\n") + "\n")))


def test_what_is_no_policy(tmp_path):
    with pytest.raises(UsageError, match="cannot read the policy"):
        policy.load(tmp_path / "none.toml")
    (tmp_path / "x").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not TOML"):
        policy.load(tmp_path / "x")


def test_a_policy_is_read_whole_or_not_at_all(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text("threshold = 1\n" + "#" * (1 << 20))
    with pytest.raises(UsageError, match="bytes are too many"):
        policy.load(path)


def test_an_empty_date_is_not_never(made, write):
    with pytest.raises(UsageError, match="expires"):
        policy.load(write("threshold = 1\n" + key(made, "a", 'expires = ""')))
