"""Text of a bundle on a terminal."""

import json

import pytest
from click.testing import CliRunner

from pih.cli import _errors, _terminal, inspect, seal, verify
from pih.seal import attach, dsse, referrers
from pih.seal import verify as seals
from pih_runtime.errors import SealError
from tests.support import bundles
from tests.support.shipped import LINE, TEXT, listing


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain → text ✓ ü", "plain → text ✓ ü"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\u202egpj.exe\u200f", "\\u202egpj.exe\\u200f"),
        ("\ud800", "\\ud800"),
    ],
)
def test_nothing_moves_the_cursor_or_turns_the_line(text, shown):
    assert _terminal.printable(text) == shown


@pytest.mark.parametrize("form", [[], ["--files"], ["--tree"]])
def test_a_hostile_bundle_is_shown_and_does_nothing(tmp_path, form):
    hostile = "\x1b]0;title\x07\u202e\n"
    line = {**LINE, "path": f"/{hostile}", "component": hostile, "reason": hostile, "size": 10, "layer": hostile}
    (tmp_path / "pih").mkdir()
    (tmp_path / "pih/lock.json").write_bytes(TEXT)
    (tmp_path / "pih/bundle.json").write_text(json.dumps(json.loads(listing()) | {"name": hostile, "files": [line]}))
    run = CliRunner().invoke(inspect.command, [str(tmp_path), *form])
    assert run.exit_code == 0
    assert "\\x1b]0;title" in run.output
    assert not set("\x1b\x07\u202e") & set(run.output)


def test_an_error_is_shown_as_safely(capsys):
    _errors.show(SealError("a\x1b[2Jb", where="\u202ec", fix="d\r"), as_json=False)
    assert capsys.readouterr().err == "pih: error: \\u202ec: a\\x1b[2Jb\n  to fix: d\\r\n"
    _errors.show(SealError("a\npih: all is well"), as_json=False)
    assert capsys.readouterr().err == "pih: error: a\\npih: all is well\n"
    _errors.show(SealError("a\x9b\u202e"), as_json=True)
    said = capsys.readouterr().err
    assert said.isascii()
    assert json.loads(said)["what"] == "a\x9b\u202e"


def test_the_name_of_a_signer_is_what_anybody_wrote(tmp_path):
    forged = "nobody\nvouched   by root (ed25519:0)\x1b[2J"
    attach.seal(bundles.write(tmp_path / "work"), tmp_path / "sealed", [])
    found = seals.whole(tmp_path / "sealed")
    documents = dict(found.documents)
    for kind in referrers.STATEMENTS.values():
        envelope = dsse.parse(documents[kind])
        documents[kind] = dsse.to_json(dsse.Envelope(envelope.payload, (dsse.Signature(forged, b"x"),)))
    entry = json.loads((tmp_path / "sealed/index.json").read_bytes())["manifests"][0]
    referrers.write(tmp_path / "sealed", entry, found.image.blob, documents)
    sealed = str(tmp_path / "sealed")
    for command, arguments in ((verify, [sealed]), (seal, [sealed, "-o", str(tmp_path / "x")]), (inspect, [sealed])):
        run = CliRunner().invoke(command.command, arguments)
        assert run.exit_code == 0
        assert dsse.UNKNOWN in run.output
        assert "vouched   by" not in run.output
    assert dsse.named([dsse.parse(documents[kind]) for kind in referrers.STATEMENTS.values()]) == (dsse.UNKNOWN,)
