#!/bin/sh
# Checks a carried folder (tools/gpu/pack) on a machine with an NVIDIA GPU: every kernel's results, then speed.
# Needs a driver that serves CUDA 13, python3 (3.11 or newer) with torch and numpy; transformers where it is installed.
#   tools/gpu/check.sh [--output FILE.json] [--tiny] [--seconds 300]
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd -P)
python=${PIH_PYTHON:-python3}
command -v "$python" >/dev/null || {
    echo "check.sh: there is no $python; set PIH_PYTHON to Python 3.11 or newer" >&2
    exit 9
}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
    echo "check.sh: needs Python 3.11 or newer; set PIH_PYTHON to it" >&2
    exit 9
}
# not by PYTHONPATH, which has no room for a folder with a colon in its name
start='import glob, runpy, sys; here = sys.argv.pop(1); plugins = glob.glob(glob.escape(here) + "/plugins/*/*")
sys.path[:0] = [here, here + "/runtime", here + "/resolver", *plugins]; runpy.run_module("tools.gpu.check", run_name="__main__")'
exec "$python" -P -B -c "$start" "$here" "$@"
