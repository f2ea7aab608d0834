# A prefix:
#   generations/N/root       the image's files           generations/N/files  their digests
#   generations/N/about      what it is, in words        generations/N/shape  its folders, links and programs
#   generations/N/pih        this script, without the payload
#   current -> generations/N the one that runs           pih -> current/pih   for whoever has not the file at hand
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

# check_prefix DIR: whether it can be one; nothing is made yet
check_prefix() {
    case $(nearest "$1")$1 in *[!A-Za-z0-9/._+,@=-]*)
        die $USAGE_CODE "the prefix $1 has characters that no unit file could hold" "letters, digits and . _ + , @ = -"
        ;;
    esac
    [ -w "$(nearest "$1")" ] || die $HOST "cannot write $1" "take a --prefix of your own, or be root"
}

# open_prefix DIR: an absolute path, made if need be
open_prefix() {
    check_prefix "$1"
    above=$(nearest "$1")
    if [ ! -d "$1/generations" ]; then ABOVE=$above; fi
    mkdir -p "$1/generations" 2>/dev/null || die $HOST "cannot write $1" "take a --prefix of your own, or be root"
    PREFIX=$(cd "$1" && pwd -P)
    [ -w "$PREFIX/generations" ] || die $HOST "cannot write $PREFIX" "take a --prefix of your own, or be root"
}

# close_prefix: what open_prefix made goes again, unless something was installed
close_prefix() {
    if [ -z "$ABOVE" ] || ! rmdir "$PREFIX/generations" 2>/dev/null; then return; fi
    rm -f "$PREFIX/.lock"
    folder=$PREFIX
    while [ "$folder" != "$ABOVE" ] && rmdir "$folder" 2>/dev/null; do folder=${folder%/*}; done
}

# find_prefix DIR: of an installation that is there
find_prefix() {
    PREFIX=$(cd "$1" 2>/dev/null && pwd -P) && [ -d "$PREFIX/generations" ] ||
        die $USAGE_CODE "nothing is installed in $1" "install it first, or name another --prefix"
}

# lock_prefix: one change at a time. With flock, the lock ends with its last process, however that ends.
lock_prefix() {
    if command -v flock >/dev/null 2>&1; then
        exec 9>>"$PREFIX/.lock"
        flock -n 9 || die $HOST "another process is changing $PREFIX" "wait until it has ended"
    else
        ln -s "$$" "$PREFIX/.changing" 2>/dev/null || take_over "$(readlink "$PREFIX/.changing" || :)"
        HELD=$PREFIX/.changing
    fi
    clean
}

# take_over PID: the link that a killed process left; only one of several takes it
take_over() {
    [ -n "$1" ] && [ ! -d "/proc/$1" ] && mkdir "$PREFIX/.taken-$1" 2>/dev/null &&
        mv "$PREFIX/.changing" "$PREFIX/.taken-$1/" && ln -s "$$" "$PREFIX/.changing" 2>/dev/null ||
        die $HOST "another process is changing $PREFIX" "wait until it has ended; else remove $PREFIX/.changing"
    rm -rf "$PREFIX/.taken-$1"
}

# flush: what was written is on the disk before what comes next
flush() {
    sync -f "$PREFIX" 2>/dev/null || sync || die $HOST "the disk of $PREFIX did not take what was written" "see that it has room"
}

# clean: what an interrupted change left
clean() {
    for left in "$PREFIX"/generations/*.partial "$PREFIX"/generations/*.removed "$PREFIX"/.switch; do
        [ ! -e "$left" ] || rm -rf "$left"
    done
}

generations() {
    for folder in "$PREFIX"/generations/*; do
        case ${folder##*/} in *[!0-9]* | '') ;; *) echo "${folder##*/}" ;; esac
    done | sort -n
}

current() {
    found=$(readlink "$PREFIX/current" 2>/dev/null) || return 0
    case $found in generations/*) echo "${found#generations/}" ;; esac
}

# about N KEY
about() {
    [ ! -r "$PREFIX/generations/$1/about" ] || sed -n "s/^$2 //p" "$PREFIX/generations/$1/about"
}

# switch N: by one rename. A folder as its goal makes every mv do just that, also onto a link to a folder.
switch() {
    rm -rf "$PREFIX/.switch"
    mkdir "$PREFIX/.switch"
    ln -s "generations/$1" "$PREFIX/.switch/current"
    mv -f "$PREFIX/.switch/current" "$PREFIX/"
    rmdir "$PREFIX/.switch"
    flush
}

# users N: the processes that run from a generation
users() {
    for process in /proc/[0-9]*; do
        [ -r "$process/cmdline" ] || continue
        case $(tr '\0' ' ' <"$process/cmdline" 2>/dev/null || :) in
        *"$PREFIX/generations/$1/pih"*) ;;
        *"$PREFIX/generations/$1/root"*) echo "${process#/proc/}" ;;
        esac
    done
}

# remove N
remove() {
    mv "$PREFIX/generations/$1" "$PREFIX/generations/$1.removed"
    rm -rf "$PREFIX/generations/$1.removed"
}

# prune KEEP: the newest ones stay, and the current one, and any that runs
prune() {
    now=$(current)
    generations | sort -rn | sed "1,$1d" | while read -r old; do
        if [ "$old" = "$now" ]; then
            continue
        elif [ -n "$(users "$old")" ]; then
            say "keep     generation $old, which still runs"
        else
            remove "$old"
        fi
    done
}

# digests_of WEIGHTS: their digests lie beside them
digests_of() {
    case ${1##*/} in
    ?*.*) echo "${1%.*}.digests" ;;
    *) echo "$1.digests" ;;
    esac
}

# add_weights ROOT: those that came in a file of their own, with their digests if they are there
add_weights() {
    [ -n "$WEIGHTS" ] || return 0
    say "copy     $WEIGHTS"
    cp "$WEIGHTS" "$1/$WEIGHTS_PATH" || die $HOST "the weights could not be copied" "see that the disk of $1 has room"
    beside=$(digests_of "$WEIGHTS")
    [ ! -r "$beside" ] || cp "$beside" "$1/$DIGESTS_PATH" ||
        die $HOST "the digests of the weights could not be copied" "see that the disk of $1 has room"
}

# check_file: all that can be wrong with it before it is unpacked, and with this host
check_file() {
    check_host
    check_sizes
    check_frame
    check_members $SMALL
    [ -z "$KEY" ] || check_signature "$KEY"
}

# entry: the way in for whoever has not the file at hand; made again where it is gone
entry() {
    [ "$(readlink "$PREFIX/pih" 2>/dev/null)" != current/pih ] || return 0
    rm -f "$PREFIX/pih"
    ln -s current/pih "$PREFIX/pih"
}

# replace_damaged N: generations of the image that N is now, or of none that is known, whose files are not what they were
replace_damaged() {
    for old in $(generations); do
        case $(about "$old" image) in "$IMAGE" | '') ;; *) continue ;; esac
        if [ "$old" -eq "$1" ] || [ -z "$(wrong "$old")" ]; then
            continue
        elif [ -n "$(users "$old")" ]; then
            say "keep     generation $old, which is damaged and still runs: stop it, then install again"
        else
            say "remove   generation $old, which is damaged"
            remove "$old"
        fi
    done
}

# next_generation: unpacks the image beside, brings it to the disk, gives it its name, and then the link
next_generation() {
    check_room "$PREFIX"
    number=$(($(generations | tail -n 1) + 1))
    partial=$PREFIX/generations/$number.partial
    mkdir -p "$partial/root"
    unpack "$partial/root"
    record "$partial/root" "$partial/files"
    mount_points "$partial/root"
    add_weights "$partial/root"
    list_rest "$partial/root" "$partial/files"
    shape "$partial/root" >"$partial/shape"
    dd if="$0" bs=512 count="$HEADER_BLOCKS" of="$partial/pih" 2>/dev/null
    {
        printf 'name %s\nversion %s\nimage %s\nlock %s\nsigned %s\n' "$NAME" "$VERSION" "$IMAGE" "$LOCK" "$SIGNED"
        date -u '+installed %Y-%m-%dT%H:%M:%SZ'
    } >"$partial/about"
    flush
    mv "$partial" "${partial%.partial}"
    flush
    switch "$number"
    entry
    replace_damaged "$number"
    prune "$KEEP"
    say "installed  $NAME $VERSION as generation $number in $PREFIX"
    say "vouched    $(vouched)"
    [ -z "$UNIT" ] || write_unit
    say "start      sh $PREFIX/pih start"
}

vouched() {
    if [ "$SIGNED" = yes ] && [ "$WEIGHTS_NAMED" = no ]; then
        echo "by the key $KEY, but for the weights: the image does not name them, and they are integrity only"
    elif [ "$SIGNED" = yes ]; then
        echo "by the key $KEY"
    else
        echo "integrity only: a file cannot vouch for itself (--key checks who signed it)"
    fi
}

same_image() {
    [ -n "$1" ] && [ "$(about "$1" image)" = "$IMAGE" ]
}

# renew N: the image of this file is generation N already, and stays so if both are whole
renew() {
    check_members layer file weights
    damage=$(wrong "$1")
    if [ -n "$damage" ]; then
        say "repair   generation $1 is not what was installed ($damage): it is installed anew"
        next_generation
        return
    fi
    entry
    say "nothing to do: $NAME $IMAGE is installed and whole, as generation $1"
    [ -z "$UNIT" ] || write_unit
}

verb_install() {
    check_weights
    check_prefix "$PREFIX"
    check_file
    [ -L "$PREFIX/current" ] || check_room "$PREFIX"
    open_prefix "$PREFIX"
    lock_prefix
    now=$(current)
    if same_image "$now"; then
        renew "$now"
    elif [ -n "$now" ] && [ -n "$(about "$now" name)" ]; then
        die $USAGE_CODE "$PREFIX has $(about "$now" name) already" "upgrade, or another --prefix"
    else
        next_generation
    fi
}

verb_upgrade() {
    check_weights
    find_prefix "$PREFIX"
    check_file
    open_prefix "$PREFIX"
    lock_prefix
    now=$(current)
    [ -n "$now" ] || die $USAGE_CODE "nothing is installed in $PREFIX" "install"
    if same_image "$now"; then
        renew "$now"
        return
    fi
    case $(about "$now" name) in
    "$NAME" | '') ;;
    *)
        [ -n "$OTHER" ] || die $USAGE_CODE "$PREFIX is of $(about "$now" name), this file is $NAME" \
            "another --prefix, or --other-deployment"
        ;;
    esac
    next_generation
}

verb_rollback() {
    find_prefix "$PREFIX"
    open_prefix "$PREFIX"
    lock_prefix
    now=$(current)
    goal=${ARGUMENT:-$(generations | awk -v now="${now:-0}" '$1 < now { last = $1 } END { print last }')}
    case $goal in
    '') die $USAGE_CODE "there is no generation before ${now:-the first}" "status shows which there are" ;;
    *[!0-9]*) die $USAGE_CODE "$goal is no generation" "status shows which there are" ;;
    esac
    [ -d "$PREFIX/generations/$goal" ] || die $USAGE_CODE "there is no generation $goal" "status shows which there are"
    if [ "$goal" = "$now" ]; then
        say "nothing to do: generation $goal is the current one"
        return
    fi
    switch "$goal"
    say "generation $goal is the current one now: $(about "$goal" name) $(about "$goal" version) $(about "$goal" image)"
    [ -z "$(users "$now")" ] || say "generation $now still runs: restart it"
}

verb_uninstall() {
    find_prefix "$PREFIX"
    open_prefix "$PREFIX"
    lock_prefix
    for number in $(generations); do
        [ -z "$(users "$number")" ] || die $HOST "generation $number runs: $(users "$number" | tr '\n' ' ')" "stop it first"
    done
    remove_unit
    # the link goes first: there is never one that leads nowhere
    rm -f "$PREFIX/current" "$PREFIX/pih"
    for number in $(generations); do
        remove "$number"
    done
    rmdir "$PREFIX/generations"
    rm -rf "$PREFIX/.lock" "$PREFIX/.changing" "$PREFIX/.switch"
    rmdir "$PREFIX" 2>/dev/null || say "left     $PREFIX, which holds files that are not of pih"
    say "uninstalled"
}
