USAGE="usage: sh $0 VERB [OPTIONS]

  verify     [--key PEM] [--json]         check every byte of this file, and who signed it
  install    --prefix DIR [--key PEM] [--weights FILE] [--keep N] [--systemd [--unit-dir DIR]]
  upgrade    --prefix DIR [--other-deployment] [as install]
  start      --prefix DIR [--listen HOST:PORT] [--no-sandbox]     in the foreground
  status     --prefix DIR [--check] [--json]
  rollback   --prefix DIR [N]             go back to generation N, or to the one before
  uninstall  --prefix DIR
  load       [podman|docker|ctr] [--key PEM]                      hand the image to a container engine

Example: sh $0 install --prefix /opt/pih && sh /opt/pih/pih start
Exit codes: 2 usage, 8 damaged or not signed, 9 this host or its disk."

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
