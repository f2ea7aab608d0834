# A prefix:
#   generations/N/root       the image's files           generations/N/files  their digests
#   generations/N/about      signed, when, before it     generations/N/shape  its folders, links and programs
#   generations/N/pih        this script, without the payload: it says what the generation is
#   current -> generations/N the one that runs           pih -> current/pih   for whoever has not the file at hand
#   .pih/                    the lock, the names of units, and what makes the prefix one
# Whatever ends in .partial or .removed was interrupted, and goes with the next change.

# nearest PATH: the folder itself, or the one above it that is there
nearest() (
    path=$1
    while [ ! -d "$path" ]; do
        case $path in */*) path=${path%/*} ;; *) path=. ;; esac
        path=${path:-/}
    done
    cd "$path" && pwd -P
)

# check_prefix DIR: whether it can be one; nothing is made yet. What has `=` in it, env would take for a variable.
check_prefix() {
    case $(nearest "$1")$1 in *[!A-Za-z0-9/._+,@-]*)
        die $USAGE_CODE "the prefix $1 has characters that no worker could be started from" "letters, digits and . _ + , @ -"
        ;;
    esac
    [ ! -d "$1" ] || [ "$(nearest "$1")" != / ] || die $USAGE_CODE "the root of all folders is no prefix" "for example --prefix /opt/pih"
    [ -w "$(nearest "$1")" ] || die $HOST "cannot write $1" "take a --prefix of your own, or be root"
    check_own "$1"
}

is_prefix() {
    [ -f "$1/.pih/lock" ] && [ ! -L "$1/.pih" ]
}

# check_own DIR: what has the names of an installation there is of one; nothing else is written over, or removed later
check_own() {
    ours=no
    ! is_prefix "$1" || ours=yes
    for name in .pih generations current pih; do
        place=$1/$name
        [ -e "$place" ] || [ -L "$place" ] || continue
        case $ours:$name:$(readlink "$place" || :) in
        *:.pih: | yes:generations:*) [ ! -d "$place" ] || continue ;;
        yes:current:generations/*[!0-9]*) ;;
        yes:current:generations/[0-9]* | yes:pih:current/pih) continue ;;
        esac
        die $USAGE_CODE "$place is not of an installation, and would be in its way" "move it, or take another --prefix"
    done
}

# open_prefix DIR: an absolute path, made if need be
open_prefix() {
    check_prefix "$1"
    above=$(nearest "$1")
    is_prefix "$1" || ABOVE=$above
    mkdir -p "$1/.pih" 2>/dev/null || die $HOST "cannot write $1" "take a --prefix of your own, or be root"
    PREFIX=$(cd "$1" && pwd -P)
    [ -w "$PREFIX/.pih" ] || die $HOST "cannot write $PREFIX" "take a --prefix of your own, or be root"
}

# unmake FOLDER ABOVE: empty folders, up to the one above
unmake() {
    folder=$1
    while [ "$folder" != "$2" ] && rmdir "$folder" 2>/dev/null; do folder=${folder%/*}; done
}

# close_prefix: what open_prefix made goes again, unless something was installed
close_prefix() {
    [ -n "$LOCKED" ] && [ -n "$ABOVE" ] || return 0
    rmdir "$PREFIX/generations" 2>/dev/null || [ ! -d "$PREFIX/generations" ] || return 0
    rm -rf "$PREFIX/.pih"
    unmake "$PREFIX" "$ABOVE"
}

# find_prefix DIR: of an installation that is there
find_prefix() {
    PREFIX=$(cd "$1" 2>/dev/null && pwd -P) && is_prefix "$PREFIX" ||
        die $USAGE_CODE "nothing is installed in $1" "install it first, or name another --prefix"
}
