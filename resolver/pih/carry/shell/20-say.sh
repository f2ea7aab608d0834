USAGE_CODE=2
SEAL=8
HOST=9

# die CODE WHAT FIX
die() {
    printf 'pih: error: %s\n  to fix: %s\n' "$2" "$3" >&2
    exit "$1"
}

say() {
    printf '%s\n' "$*" >&2
}

# need PROGRAM...: what a POSIX host without them cannot do
need() {
    for program; do
        command -v "$program" >/dev/null 2>&1 ||
            die $HOST "this host has no $program" "install busybox or coreutils, tar, gzip, sed and awk"
    done
}

# megabytes BYTES
megabytes() {
    echo "$(($1 / 1000000)).$(($1 / 100000 % 10)) MB"
}

size_of() {
    ls -lnL "$1" | awk '{ print $5 }'
}

# scratch: a folder of this run's own, made when it is first asked for
scratch() {
    [ -z "$SCRATCH" ] || return 0
    need mktemp
    SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/pih-XXXXXX" 2>/dev/null) ||
        die $HOST "no folder can be made in ${TMPDIR:-/tmp}" "set TMPDIR to a folder that may be written"
}
