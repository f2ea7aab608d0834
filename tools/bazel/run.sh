# Runs one program of the lock's build graph, by the seed's shell, inside a Bazel action. No host tool is used.
#   SEED PYTHON ROOT FILES LOCK OUTPUT PROGRAM ARGUMENTS...
# PYTHON: folder of the interpreter's packages as tars. ROOT: the source tree; FILES names those of its files that
# are declared. LOCK: the lock, or nothing. Paths are relative to the action's working directory, so that the
# action is the same on every machine. Beside OUTPUT lies the scratch folder, where PROGRAM is copied to.
set -eu -o pipefail
umask 022
here=$PWD
bb=$here/$1 packages=$2 root=$here/$3 files=$here/$4 lock=$5 output=$6 program=$7
shift 7
work=$here/$output.work
python=$work/python

"$bb" rm -rf "$work"
trap '"$bb" rm -rf "$work"' EXIT
"$bb" mkdir -p "$python" "$work/scratch" "$work/source"

for package in "$packages"/*.tar; do
    "$bb" tar -x -o -f "$package" -C "$python"
done
# an absolute link is meant from the packages' root, not from the host's
"$bb" find "$python" -type l | while read -r link; do
    target=$("$bb" readlink "$link")
    case $target in /*) "$bb" ln -sfn "$python$target" "$link" ;; esac
done

# copies, not links: a program that resolved its own links would see more than was declared
copy() { (cd "$root" && "$bb" cpio -o -H newc -L) <"$files" | (cd "$work/source" && "$bb" cpio -i -d); }
copy 2>"$work/log" || { "$bb" cat "$work/log" >&2; exit 7; }
[ -z "$lock" ] || "$bb" cp "$lock" "$work/source/lock.json"

# Bazel makes the folders that it expects, a program makes its output itself
[ ! -d "$output" ] || "$bb" rmdir "$output"

# The program looks at the source tree itself, too: Bazel leaves some of what may lie there out of its globs, in silence.
# Where the declared files are copies, as on another machine, that is not to be had.
real=$("$bb" readlink -f "$root/$program/__main__.py")

libraries=
for folder in "$python"/usr/lib/*-linux-gnu "$python"/lib/*-linux-gnu; do
    libraries=$libraries${libraries:+:}$folder
done
"$bb" env -i HOME="$work/scratch" TMPDIR="$work/scratch" LC_ALL=C.UTF-8 TZ=UTC SOURCE_DATE_EPOCH=0 \
    "$python"/lib*/ld-linux-*.so.* --library-path "$libraries" "$python"/usr/bin/python3.[0-9]* -I -B -X utf8 \
    "$work/source/$program" "$@" "${real%"/$program/__main__.py"}"
