# Turns the interpreter's .debs into plain tars, by the seed's shell, inside a Bazel action. No host tool is used.
#   SEED DEB MEMBER FOLDER [NAME DEB]...
# First, the seed has to be what it is said to be: MEMBER of its own package DEB.
set -eu -o pipefail
bb=$1 deb=$2 member=$3 folder=$4
shift 4

files() { "$bb" ar -p "$1" data.tar.xz | "$bb" xz -dc; }

files "$deb" | "$bb" tar -x -O -f - "./$member" | "$bb" cmp - "$bb" || {
    echo "the seed is not $member of its package: write the lock again: pih lock" >&2
    exit 7
}
while [ $# -gt 0 ]; do
    files "$2" >"$folder/$1.tar"
    shift 2
done
