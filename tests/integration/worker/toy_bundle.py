"""Writes a bundle by hand: the real runtime and plugins, the toy backend, a tokenizer trained on the spot."""

import hashlib
import json
import random
import shutil
import struct
import subprocess
import sys
import tomllib
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from pih_runtime import digests
from pih_runtime.canonical import sealed
from pih_runtime.plan import Cache, Limits, Plan, Weight, to_json
from tests.support.waiting import PATIENCE

TREE = Path(__file__).resolve().parents[3]
PLUGINS = (
    "plugins/platform/linux",
    "plugins/storage/safetensors",
    "tests/unit/plugins/toy_backend",
    "plugins/memory/paged",
    "plugins/model/text",
    "plugins/execution/continuous",
    "plugins/surface/openai",
    "plugins/health/probe",
)
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ABOUT = {"schema": 1, "template_variables": {}, "bos_id": None, "defaults": {"temperature": 0.0}}
SOURCES_ONLY = shutil.ignore_patterns("*.pyc", "__pycache__", "plugin.toml")
CHOICES = list(range(3, 400))  # all but the special ids
LAUNCHER = """import sys
sys.path.insert(0, {lib!r})
from pih_runtime.worker import main
sys.exit(main(sys.argv[1:]))
"""


def tokenizer() -> Tokenizer:
    """A byte-level BPE of 400 ids over seeded words."""
    rng = random.Random(7)
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 7))) for _ in range(300)]
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[AddedToken(text, special=True) for text in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")],
        show_progress=False,
    )
    made.train_from_iterator([" ".join(rng.choices(words, k=20)) for _ in range(200)], trainer)
    return made


def plan(vocab: int, *, tokens: int = 32, seqs: int = 4, context: int = 256, pages: int = 64, values: int = 64) -> Plan:
    return Plan(
        model="toy",
        limits=Limits(tokens=tokens, seqs=seqs, context=context),
        vocab=vocab,
        arena_bytes=0,
        buffers=(),
        caches=(Cache("kv", layers=1, kv_heads=1, head_dim=1, page_size=16, pages=pages, dtype="f32"),),
        weights=(Weight("toy", (values,), "f32", "rows", 4 * values),),
        calls=(),
    )


def write_bundle(
    folder: Path,
    *,
    plugins=PLUGINS,
    settings=None,
    limits=None,
    fallbacks=(),
    isa="x86-64-v3",
    total=1000,
    delivery="embed",
    verify="start",
    pinned=False,
    values=64,
    stop_ids=(0, 2),
) -> Path:
    """A bundle's root folder; its /pih is FOLDER/pih. settings: by plugin id. values: of its one tensor.

    Separate weights have their digests beside them where they are pinned.
    """
    root = folder / "pih"
    made = tokenizer()
    lowered = plan(made.get_vocab_size(), values=values, **(limits or {}))
    (root / "model").mkdir(parents=True)
    (root / "weights").mkdir()
    made.save(str(root / "model/tokenizer.json"))
    (root / "model/chat_template.jinja").write_text(TEMPLATE)
    about = {
        "schema": 1,
        "template_variables": {},
        "bos_id": None,
        "stop_ids": list(stop_ids),
        "defaults": {"temperature": 0.0},
    }
    (root / "model/text.json").write_text(json.dumps(about))
    (root / "plan.json").write_text(to_json(lowered))
    packed = weights_file(data=bytes(4 * values))
    (root / "weights/weights.safetensors").write_bytes(packed)
    table = digests.to_text(digests.table_of(memoryview(packed), digests.SMALLEST))
    if delivery == "embed" or pinned:
        (root / ("weights.digests" if delivery == "embed" else "weights/weights.digests")).write_bytes(table)
    weights = {
        "format": "stored",
        "delivery": delivery,
        "verify": verify,
        "digest": digests.root(table) if pinned else "",
    }
    shutil.copytree(
        TREE / "runtime/pih_runtime", root / "lib/pih_runtime", ignore=shutil.ignore_patterns("*.pyc", "__pycache__")
    )
    descriptions = [_install(TREE / place if isinstance(place, str) else place, root / "lib") for place in plugins]
    choices = {"backend/toy": {"choices": CHOICES, **(settings or {}).get("backend/toy", {})}}
    lock = _lock(descriptions, {**(settings or {}), **choices})
    lock["target"]["isa"], lock["budget"]["total"] = isa, total
    (root / "lock.json").write_text(json.dumps(sealed({**lock, "fallbacks": list(fallbacks), "weights": weights})))
    (folder / "usr/bin").mkdir(parents=True)
    (folder / "usr/bin/pih-worker").write_text(LAUNCHER.format(lib=str(root / "lib")))
    seal(root, without_weights=delivery == "separate")
    return folder


def weights_file(name: str = "toy", data: bytes = bytes(256)) -> bytes:
    header = json.dumps({name: {"dtype": "F32", "shape": [len(data) // 4], "data_offsets": [0, len(data)]}}).encode()
    header += b" " * (-(len(header) + 8) % 64)
    return struct.pack("<Q", len(header)) + header + data


def seal(root: Path, *, without_weights: bool = False) -> None:
    """Write bundle.json for what lies there now."""
    files = []
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if (
            path.is_file()
            and relative.name != "bundle.json"
            and not (without_weights and relative.parts[0] == "weights")
        ):
            data = path.read_bytes()
            digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
            files.append(
                {"path": f"/pih/{relative}", "size": len(data), "digest": digest, "component": "toy", "reason": "test"}
            )
    lock = next(item["digest"] for item in files if item["path"] == "/pih/lock.json")
    (root / "bundle.json").write_text(json.dumps({"schema": 1, "name": "toy", "lock": lock, "files": files}))


def command(folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-B", str(folder / "usr/bin/pih-worker"), *arguments]


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    """Exit code and stderr of a worker that ends by itself."""
    done = subprocess.run(command(folder, *arguments), check=False, capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode, done.stderr


def errors(text: str) -> list[str]:
    """The lines of a worker's stderr that are errors."""
    return [line for line in text.splitlines() if line.startswith("pih-worker: error:")]


def _install(place: Path, lib: Path) -> dict:
    description = tomllib.loads((place / "plugin.toml").read_text())
    package = description["runtime"]["package"]
    source = place / package if (place / package).is_dir() else place
    shutil.copytree(source, lib / package, ignore=SOURCES_ONLY)
    return description


def _lock(descriptions, settings) -> dict:
    serving = {capability: item["id"] for item in descriptions for capability in item["provides"]}
    plugins = [
        {
            "id": item["id"],
            "version": item["version"],
            "kind": item["kind"],
            "abi": item["abi"],
            "source": "workspace",
            "provides": item["provides"],
            "requires": [
                {"capability": name, "specifier": specifier, "provider": serving[name]}
                for name, specifier in item.get("requires", {}).items()
            ],
            "reasons": ["test"],
            "runtime": item["runtime"],
            "settings": settings.get(item["id"], {}),
            "permissions": item["permissions"],
        }
        for item in descriptions
    ]
    return {
        "schema": 1,
        "pih": "0.1.0",
        "profile": {"name": "toy", "file": "profiles/toy.toml", "sha256": "0" * 64},
        "target": {"os": "linux", "arch": "x86_64", "isa": "", "threads": 1, "memory_bytes": 1 << 30},
        "service": {"host": "127.0.0.1", "port": 0, "model_name": "toy"},
        "plugins": plugins,
        "start_order": [item["id"] for item in descriptions],
        "budget": {
            "weights": 256,
            "kv": 0,
            "activations": 0,
            "spill": 0,
            "host": 0,
            "total": 0,
            "limit": 1 << 30,
            "device": 0,
        },
        "plan": {"sha256": "ab" * 32, "calls": 0},
    }
