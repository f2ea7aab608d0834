#!/bin/sh
# What a change does to a deployment: builds its image at a base revision and here, and writes the difference.
#
#   compare.sh BASE PROFILE REPORT [GATE ...]      e.g. compare.sh origin/main profiles/x.toml report.md --max-growth 1MB
#
# REPORT is Markdown for a comment. Exit code: that of `pih diff`, 1 where a gate did not hold; REPORT is written all the same.
set -eu
if [ $# -lt 3 ]; then
    echo "usage: $0 BASE PROFILE REPORT [GATE ...]" >&2
    exit 2
fi
base=$1 profile=$2 report=$3
shift 3

if ! git rev-parse --verify --quiet "$base^{commit}" >/dev/null; then
    echo "$0: there is no commit $base in this clone: fetch it (a shallow clone has few), or name another" >&2
    exit 2
fi
work=$(mktemp -d)
trap 'git worktree remove --force "$work/base" 2>/dev/null || :; rm -rf "$work"; git worktree prune' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
git worktree add --quiet --detach "$work/base" "$base"

./pih build --profile "$profile" --output "$work/new"
if [ ! -f "$work/base/$profile" ]; then
    { echo "### $profile is new"; echo '```'; ./pih size "$work/new"; echo '```'; } >"$report"
    exit 0
fi
(cd "$work/base" && ./pih build --profile "$profile" --output "$work/old")
./pih diff "$work/old" "$work/new" --markdown "$@" >"$report"
