# From the file to a generation that is the current one, and back.

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
    check_signatures
}

# entry: the way in for whoever has not the file at hand; made again where it is gone
entry() {
    [ -L "$PREFIX/pih" ] || ln -s current/pih "$PREFIX/pih"
}

# replace_damaged N: generations of the image that N is now, or of none that is known, whose files are not what they were
replace_damaged() {
    for old in $(generations); do
        facts "$old"
        case $its_image in "$IMAGE" | '') ;; *) continue ;; esac
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

# next_generation BEFORE: unpacks the image beside, brings it to the disk, and gives it its name
next_generation() {
    check_room "$PREFIX"
    number=$(($(generations | tail -n 1) + 1))
    partial=$PREFIX/generations/$number.partial
    mkdir -p "$partial/root"
    unpack "$partial/root"
    record "$partial/root" "$partial/files"
    mount_points "$partial/root"
    add_weights "$partial/root"
    plain "$partial"
    list_rest "$partial/root" "$partial/files"
    shape "$partial/root" >"$partial/shape"
    ! grep -q '^mode ' "$partial/shape" || die $HOST "the disk of $PREFIX keeps no modes of files" "take another --prefix"
    dd if="$0" bs=512 count="$HEADER_BLOCKS" of="$partial/pih" 2>/dev/null
    write_about "$partial" "$([ -n "$SIGNERS" ] && echo yes || echo no)" "$(date -u '+%Y-%m-%dT%H:%M:%SZ')" "$1"
    plain "$partial"
    flush
    mv "$partial" "${partial%.partial}"
    flush
    put_in_place "$number"
}

# put_in_place N: it is whole, and becomes the current one
put_in_place() {
    switch "$1"
    entry
    say "installed  $NAME $VERSION as generation $1 in $PREFIX"
    say "vouched    $(vouched)"
    replace_damaged "$1"
    prune "$KEEP"
    write_unit
    say "start      sh $PREFIX/pih start"
}

vouched() {
    if [ -n "$SIGNERS" ] && [ "$WEIGHTS_NAMED" = no ]; then
        echo "$SIGNERS, but for the weights: the image does not name them, and they are integrity only"
    elif [ -n "$SIGNERS" ]; then
        echo "$SIGNERS"
    else
        echo "integrity only: a file cannot vouch for itself (--key checks who signed it)"
    fi
}

# same_weights N: whether it has those that come with this file or beside it
same_weights() {
    {
        carried_weights
        [ -z "$WEIGHTS" ] || echo "$(digest <"$WEIGHTS")  $WEIGHTS_PATH"
    } | awk 'NR == FNR { known[$0] = 1; next } !($0 in known) { exit 1 }' "$PREFIX/generations/$1/files" -
}

# there: the generation that is what would be installed, damaged or not: the current one, else the newest
there() {
    { echo "$now" && generations | sort -rn; } | while read -r number; do
        facts "$number"
        [ "$its_image" = "$IMAGE" ] || continue
        if [ -n "$(unlike "$PREFIX/generations/$number" 2>/dev/null)" ] || same_weights "$number"; then
            echo "$number"
            break
        fi
    done
}

# bring N: what this file holds becomes the current generation; N is what it is already, or nothing
bring() {
    if [ -z "$1" ]; then
        next_generation "$now"
        return
    fi
    check_members layer file weights
    damage=$(wrong "$1")
    if [ -n "$damage" ]; then
        say "repair   generation $1 is not what was installed ($damage): it is installed anew"
        next_generation "$(if [ "$1" = "$now" ]; then before "$now"; else echo "$now"; fi)"
    elif [ "$1" = "$now" ]; then
        renew "$1"
    else
        say "whole    generation $1 is this image: nothing is unpacked"
        write_about "$PREFIX/generations/$1" "$([ -n "$SIGNERS" ] && echo yes || about "$1" signed)" \
            "$(about "$1" installed)" "$now"
        flush
        put_in_place "$1"
    fi
}

# renew N: the current generation, which is whole, stays so
renew() {
    entry
    if [ -n "$SIGNERS" ] && [ "$(about "$1" signed)" != yes ]; then
        write_about "$PREFIX/generations/$1" yes "$(about "$1" installed)" "$(about "$1" before)"
        flush
        say "vouched    $(vouched)"
    fi
    say "nothing to do: $NAME $IMAGE is installed and whole, as generation $1"
    [ -z "$KEEP_ASKED" ] || prune "$KEEP"
    write_unit
}

# begin_change: of this prefix, by this file
begin_change() {
    open_prefix "$PREFIX"
    lock_prefix
    open_unit
    now=$(current)
    facts "${now:-none}"
}

verb_install() {
    check_weights
    check_prefix "$PREFIX"
    check_file
    [ -L "$PREFIX/current" ] || check_room "$PREFIX"
    begin_change
    same=$(there)
    [ -z "$its_name" ] || [ "$same" = "$now" ] ||
        die $USAGE_CODE "$PREFIX has $its_name already" "upgrade, or another --prefix"
    bring "$same"
}

verb_upgrade() {
    check_weights
    find_prefix "$PREFIX"
    check_prefix "$PREFIX"
    check_file
    begin_change
    [ -n "$now" ] || die $USAGE_CODE "nothing is installed in $PREFIX" "install"
    case $its_name:$OTHER in
    "$NAME":* | :* | *:yes) bring "$(there)" ;;
    *) die $USAGE_CODE "$PREFIX is of $its_name, this file is $NAME" "another --prefix, or --other-deployment" ;;
    esac
}
