"""Makes the plugins' runtime packages importable, as a bundle's /pih/lib does."""

import sys
from pathlib import Path

TREE = Path(__file__).resolve().parents[3]
for manifest in sorted(TREE.glob("plugins/*/*/plugin.toml")):
    sys.path.append(str(manifest.parent))
sys.path.append(str(Path(__file__).parent))
