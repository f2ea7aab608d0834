#!/bin/sh
# Checks a carried folder (tools/gpu/pack) on a machine with an NVIDIA GPU: every kernel's results, then speed.
# Needs a driver that serves CUDA 13, python3 (3.11 or newer) with torch and numpy; transformers where it is installed.
#   tools/gpu/check.sh [--output FILE.json] [--tiny] [--seconds 300]
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd -P)
python=${PIH_PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
    echo "check.sh: needs Python 3.11 or newer; set PIH_PYTHON to it" >&2
    exit 9
}
for module in numpy torch; do
    "$python" -P -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$module') is None)" || {
        echo "check.sh: $python has no $module: install it, or set PIH_PYTHON to one that has" >&2
        exit 9
    }
done
path=$here:$here/runtime:$here/resolver
for plugin in "$here"/plugins/*/*; do path=$path:$plugin; done
PYTHONPATH=$path exec "$python" -P -B -m tools.gpu.check "$@"
