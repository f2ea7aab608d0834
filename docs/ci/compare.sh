#!/bin/sh
# What a change does to a deployment: builds its image at a base revision and here, and writes the difference.
#
#   compare.sh BASE PROFILE REPORT [GATE ...]      e.g. compare.sh origin/main profiles/x.toml report.md --max-growth 1MB
#
# REPORT is Markdown for a comment. Exit code: that of `pih diff`, 1 where a gate did not hold; REPORT is written all the same.
set -eu
base=$1 profile=$2 report=$3
shift 3

work=$(mktemp -d)
trap 'git worktree remove --force "$work/base"; rm -rf "$work"' EXIT
git worktree add --quiet --detach "$work/base" "$base"

./pih build --profile "$profile" --output "$work/new"
if [ ! -f "$work/base/$profile" ]; then
    { echo "### $profile is new"; echo '```'; ./pih size "$work/new"; echo '```'; } >"$report"
    exit 0
fi
(cd "$work/base" && ./pih build --profile "$profile" --output "$work/old")
./pih diff "$work/old" "$work/new" --markdown "$@" >"$report"
