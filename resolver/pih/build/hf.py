"""Files of a Hugging Face repository, through its own client: HF_ENDPOINT, HF_TOKEN and its cache settings apply."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from pih import spdx
from pih.build import command, purl
from pih.build.store import Store
from pih.lock import Artifact

# A process of its own, like the other clients: its settings are read from the environment at import,
# and a download that hangs can be ended.
_DOWNLOAD = """
import sys
from huggingface_hub import hf_hub_download
repository, revision, name, folder = sys.argv[1:]
try:
    hf_hub_download(repository, name, revision=revision, local_dir=folder)
except Exception as problem:
    sys.exit(f"{type(problem).__name__}: {problem}")
"""
# sha256 and size of a file that the hub keeps in LFS: the sha256 is what it names as the ETag. Nothing of other files.
_IDENTITY = """
import re, sys
from huggingface_hub import get_hf_file_metadata, hf_hub_url
repository, revision, name, folder = sys.argv[1:]
try:
    found = get_hf_file_metadata(hf_hub_url(repository, name, revision=revision))
except Exception as problem:
    sys.exit(f"{type(problem).__name__}: {problem}")
if re.fullmatch("[0-9a-f]{64}", found.etag or "") and found.size is not None:
    print(found.etag, found.size)
"""
# The licence that the repository's card names at that commit; nothing where there is no card, or it names none.
_LICENCE = """
import sys
from huggingface_hub import hf_hub_download
from huggingface_hub.repocard import metadata_load
repository, revision, name, folder = sys.argv[1:]
try:
    said = (metadata_load(hf_hub_download(repository, name, revision=revision, local_dir=folder)) or {}).get("license")
    print(said if isinstance(said, str) else "")
except Exception as problem:
    # where a mirror leaves out the hub's own word for it, the answer is the cause of an error of the client's cache
    answers = [getattr(error, "response", None) for error in (problem, problem.__cause__)]
    if 404 not in [answer.status_code for answer in answers if answer is not None]:
        sys.exit(f"{type(problem).__name__}: {problem}")
"""
_WEIGHTS = (".safetensors", ".gguf")
_MISSING = "the Python that runs pih is gone: remove .venv and start again"


def fetch(
    wanted: purl.Purl,
    artifact: Artifact,  # noqa: ARG001 - every source's signature
    folder: Path,
    environment: Mapping[str, str],
    advanced: Callable[[int], None],
) -> Path:
    """Download one file of a repository at a revision."""
    return _download((wanted.name, wanted.version, purl.qualifier(wanted, "file_name")), folder, environment, advanced)


def pin_hf(repository: str, revision: str, file_name: str, store: Store, environment: Mapping[str, str]) -> Artifact:
    """One file at a revision. revision: a commit, so that it stays what it is.

    Of weights in LFS nothing is downloaded: whoever fetches them holds them against the digest that the hub named here.
    Other files are downloaded into the store; they are small, and locking reads them.
    """
    what = (repository, revision, file_name)
    with store.workspace() as folder:
        identity = _identity(what, folder, environment) if file_name.endswith(_WEIGHTS) else []
        if identity:
            digest, size = identity[0], int(identity[1])
        else:
            path = _download(what, folder, environment, lambda _: None)
            size = path.stat().st_size
            digest = store.add_file(path)
        card = _client(
            _LICENCE, (repository, revision, "README.md"), folder / "card", folder, environment, lambda _: None
        )
    purls = (purl.render("huggingface", repository, revision, {"file_name": file_name}),)
    name = f"{repository.rpartition('/')[2].lower()}/{file_name}"
    return Artifact(name, revision, "hf", digest, size, purls, spdx.expression(card), ())


def _identity(what: tuple[str, str, str], folder: Path, environment: Mapping[str, str]) -> list[str]:
    return _client(_IDENTITY, what, folder, folder, environment, lambda _: None).split()


def _download(
    what: tuple[str, str, str], folder: Path, environment: Mapping[str, str], advanced: Callable[[int], None]
) -> Path:
    """what: repository, revision, file name."""
    target = folder / "files"
    _client(_DOWNLOAD, what, target, folder, environment, advanced)
    return target / what[2]


def _client(
    program: str,
    what: tuple[str, str, str],
    target: Path,
    folder: Path,
    environment: Mapping[str, str],
    advanced: Callable[[int], None],
) -> str:
    # Not -I: the user's own environment decides, as for pip.
    arguments = [sys.executable, "-c", program, *what, str(target)]
    return command.run("huggingface_hub", arguments, folder, environment, missing=_MISSING, advanced=advanced)
