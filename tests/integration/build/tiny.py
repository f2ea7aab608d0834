"""A made-up project whose steps are tiny: their programs, and its build graph."""

from pathlib import Path

from pih.lock import Seed, Step

REPOSITORY = Path(__file__).resolve().parents[3]
INTERPRETER = ("libc6", "libexpat1", "libpython3.11-minimal", "libpython3.11-stdlib", "python3.11-minimal", "zlib1g")
SEED = Seed("libc6", "seed", "0" * 64, 1)  # the embedded builder needs none

MAIN = """
import json, os, sys, time
from pathlib import Path
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
spec = json.loads(Path(sys.argv[2]).read_text())
__import__("pih_steps." + sys.argv[1], fromlist=["run"]).run(spec)
"""
JOIN = """
import json, os, sys
from pathlib import Path
def run(spec):
    parts = [spec["params"].get("text", "")]
    for name in sorted(spec["trees"]):
        tree = Path(spec["trees"][name])
        if not name.startswith(("resolver", "runtime")):
            parts += [p.read_text() for p in sorted([tree, *tree.rglob("*")]) if p.is_file()]
    parts += [Path(path).read_text() for _, path in sorted(spec["steps"].items())]
    parts += [str(Path(path).stat().st_size) for _, path in sorted(spec["artifacts"].items())]
    Path(spec["output"]).write_text("|".join(parts))
"""
IMAGE = """
import json
from pathlib import Path
def run(spec):
    out = Path(spec["output"])
    out.mkdir()
    text = Path(spec["steps"]["join"]).read_text()
    (out / "text").write_text(text)
    import hashlib
    digest = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    (out / "index.json").write_text(json.dumps({"manifests": [{"digest": digest}]}))
"""
FAIL = """
import sys
from pathlib import Path
def run(spec):
    Path(spec["output"]).mkdir()
    (Path(spec["output"]) / "half").write_text("half")
    print("the sky is falling")
    sys.exit("and that is why")
"""
SLEEP = """
import time
from pathlib import Path
def run(spec):
    Path(spec["output"]).mkdir()
    (Path(spec["output"]) / "half").write_text("half")
    time.sleep(spec["params"]["seconds"])
"""
LOOK = """
import json, os, sys, time
from pathlib import Path
def run(spec):
    root = Path(__file__).parents[2]
    seen = {"environment": sorted(os.environ), "python": sys.version, "cwd": os.listdir("."), "umask": os.umask(0),
            "source": sorted(str(path.relative_to(root)) for path in root.rglob("*")),
            "flags": [sys.flags.isolated, sys.flags.utf8_mode], "zone": time.tzname[0], "path": sys.path}
    Path(spec["output"]).write_text(json.dumps(seen))
"""

PROGRAMS = {"__main__": MAIN, "join": JOIN, "image": IMAGE, "fail": FAIL, "sleep": SLEEP, "look": LOOK}


def a_step(id_, run="join", *, params=None, artifacts=(), trees=(), steps=()) -> Step:
    return Step(id_, run, params or {}, tuple(artifacts), tuple(trees), tuple(steps), ())


GRAPH = (
    a_step("first", params={"text": "f"}, trees=["trees/a"]),
    a_step("second", params={"text": "s"}, trees=["trees/b"], artifacts=["zlib1g"]),
    a_step("join", steps=["first", "second"], params={"text": "j"}),
    a_step("image", "image", steps=["join"]),
)
