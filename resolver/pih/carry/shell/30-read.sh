# The payload is a tar archive of the image layout. It begins behind this script and goes on in FILE.001, FILE.002 ...
# PARTS has a line for each: bytes, sha256. MEMBERS has one for each file in it: role, sha256, offset, size, path, title.

MIB=1048576

# part N: the file that holds the part
part() {
    if [ "$1" -eq 0 ]; then echo "$0"; else printf '%s.%03d\n' "$0" "$1"; fi
}

# check_sizes: every part is there, none is cut short or has grown
check_sizes() {
    number=0 before=$((HEADER_BLOCKS * 512))
    while read -r size _; do
        file=$(part $number)
        [ -f "$file" ] && [ -r "$file" ] ||
            die $SEAL "$file is missing, or no file: the payload is in ${PART_COUNT} files" "copy all of them to one folder"
        found=$(size_of "$file")
        if [ $number -eq 0 ] && [ "$found" -eq $before ]; then
            die $USAGE_CODE "$0 is the installed copy: it carries no payload" "give the .pih file itself"
        fi
        [ "$found" -eq $((before + size)) ] ||
            die $SEAL "$file has $found bytes and should have $((before + size))" "copy it again from where it came"
        number=$((number + 1)) before=0
    done <<PARTS_END
$PARTS
PARTS_END
}

# progress [PERCENT]: for whoever sits in front of it; without a number the line is cleared
progress() {
    if [ ! -t 2 ]; then
        return
    elif [ $# -eq 1 ]; then
        printf '\r  %d %%' "$1" >&2
    else
        printf '\r         \r' >&2
    fi
}

# range FILE OFFSET SIZE: these bytes of a file; large blocks wherever they fit, which is what makes it quick
range() (
    file=$1 at=$2 left=$3
    take() {
        [ "$2" -gt 0 ] || return 0
        dd if="$file" bs="$1" skip=$((at / $1)) count="$2" 2>/dev/null || exit
        at=$((at + $1 * $2)) left=$((left - $1 * $2))
    }
    least() {
        if [ "$1" -lt "$2" ]; then echo "$1"; else echo "$2"; fi
    }
    take 1 "$(least $(((512 - at % 512) % 512)) "$left")"
    if [ "$left" -ge $((2 * MIB)) ]; then
        take 512 $(((MIB - at % MIB) % MIB / 512))
        while [ "$left" -ge $MIB ]; do
            take $MIB "$(least $((left / MIB)) 256)"
            [ "$3" -lt $((512 * MIB)) ] || progress $((($3 - left) * 100 / $3))
        done
        [ "$3" -lt $((512 * MIB)) ] || progress
    fi
    take 512 $((left / 512))
    take 1 "$left"
)

# slice OFFSET SIZE: these bytes of the payload
slice() (
    from=$1 left=$2 start=0 number=0 base=$((HEADER_BLOCKS * 512))
    while read -r size _; do
        end=$((start + size))
        if [ "$left" -gt 0 ] && [ "$from" -lt $end ]; then
            count=$((end - from))
            [ $count -le "$left" ] || count=$left
            range "$(part $number)" $((base + from - start)) "$count"
            from=$((from + count)) left=$((left - count))
        fi
        start=$end number=$((number + 1)) base=0
    done <<PARTS_END
$PARTS
PARTS_END
)

# digest: of what comes in
digest() {
    sha256sum | sed 's/ .*//'
}

# members ROLE...: their lines
members() {
    printf '%s\n' "$MEMBERS" | awk -v roles=" $* " 'index(roles, " " $1 " ")'
}

# damaged WHAT: says which of several parts it is
damaged() {
    number=0
    while read -r size want; do
        file=$(part $number)
        from=0
        [ $number -gt 0 ] || from=$((HEADER_BLOCKS * 512))
        [ "$(range "$file" "$from" "$size" | digest)" = "$want" ] ||
            die $SEAL "$1 is damaged, in $file" "copy that file again from where it came"
        number=$((number + 1))
    done <<PARTS_END
$PARTS
PARTS_END
    die $SEAL "$1 is not what this file says it is" "export the bundle again"
}

# check_frame: what lies between the members
check_frame() {
    found=$({
        at=0
        while read -r _ _ offset size _; do
            slice $at $((offset - at))
            at=$((offset + size))
        done <<MEMBERS_END
$MEMBERS
MEMBERS_END
        slice $at $((PAYLOAD_SIZE - at))
    } | digest)
    [ "$found" = "$FRAME" ] || damaged "the archive around the members"
}

# check_member SHA256 OFFSET SIZE TITLE
check_member() {
    [ "$(slice "$2" "$3" | digest)" = "$1" ] || damaged "$4"
}

# check_members ROLE...
check_members() {
    while read -r _ sha256 offset size _ title _; do
        [ -n "$title" ] || continue
        [ "$size" -lt 1000000 ] || say "check    $title ($(megabytes "$size"))"
        check_member "$sha256" "$offset" "$size" "$title"
    done <<MEMBERS_END
$(members "$@")
MEMBERS_END
}

SMALL="layout index docker config manifest attached envelope"
