#!/bin/sh
# What a change does to a deployment: compares its lock, or its image built there and here, with that of a base revision.
#
#   compare.sh [--locks] BASE PROFILE REPORT [GATE ...]
#
#   compare.sh --locks origin/main profiles/x.toml report.md --fail-on licence
#   compare.sh origin/main profiles/x.toml report.md --max-growth 1MB
#
# REPORT is Markdown for a comment. Exit code: that of `pih diff`, 1 where a gate did not hold; REPORT is written all the
# same. A profile that BASE has not is new: nothing is compared, and no gate is judged.
set -eu
what=images
if [ "${1-}" = --locks ]; then
    what=locks
    shift
fi
if [ $# -lt 3 ]; then
    echo "usage: $0 [--locks] BASE PROFILE REPORT [GATE ...]" >&2
    exit 2
fi
base=$1 profile=$2 report=$3
shift 3

if ! git rev-parse --verify --quiet "$base^{commit}" >/dev/null; then
    echo "$0: there is no commit $base in this clone: fetch it (a shallow clone has few), or name another" >&2
    exit 2
fi
# as git has it: from the top of the repository
folder=$(cd "$(dirname "$profile")" && pwd -P)
top=$(git rev-parse --show-toplevel)
case $folder/ in
"$top"/*) ;;
*)
    echo "$0: $profile is not in the repository $top" >&2
    exit 2
    ;;
esac
inside=${folder#"$top"}/$(basename "$profile")
inside=${inside#/}
lock=${inside%.toml}.lock.json

is_new() {
    echo "$0: $base has no $1: nothing is compared, and no gate is judged" >&2
    echo "### $1 is new"
}

if [ "$what" = locks ]; then
    if ! git cat-file -e "$base:$lock" 2>/dev/null; then
        is_new "$lock" >"$report"
        exit 0
    fi
    "$top/pih" diff "$base:$lock" "$top/$lock" --markdown "$@" >"$report"
    exit 0
fi

work=$(mktemp -d)
trap 'git worktree remove --force "$work/base" 2>/dev/null || :; rm -rf "$work"; git worktree prune' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

"$top/pih" build --profile "$profile" --output "$work/new"
if ! git cat-file -e "$base:$inside" 2>/dev/null; then
    { is_new "$inside"; echo '```'; "$top/pih" size "$work/new"; echo '```'; } >"$report"
    exit 0
fi
git worktree add --quiet --detach "$work/base" "$base"
(cd "$work/base" && ./pih build --profile "$inside" --output "$work/old")
"$top/pih" diff "$work/old" "$work/new" --markdown "$@" >"$report"
