# From the layers to a folder. Every entry was checked when the file was exported, and is again by its name here.

# check_host: what the image was compiled for
check_host() {
    found=$(uname -m)
    [ "$found" = "$ARCH" ] || die $HOST "the image is for $ARCH, this host is $found" "build the deployment for this host"
    [ -n "$CPU_FLAGS" ] || return 0
    [ -r /proc/cpuinfo ] || die $HOST "/proc/cpuinfo cannot be read" "mount /proc"
    flags=" $(sed -n '/^flags/{s/.*://p;q;}' /proc/cpuinfo) "
    missing=
    for flag in $CPU_FLAGS; do
        case $flags in *" $flag "*) ;; *) missing="$missing $flag" ;; esac
    done
    [ -z "$missing" ] || die $HOST "the image is for $ISA, this processor has no$missing" "build the deployment for this host"
}

# check_room FOLDER
check_room() {
    needs=$UNPACKED
    [ -z "$WEIGHTS" ] || needs=$((needs + $(size_of "$WEIGHTS")))
    free=$(df -Pk "$(nearest "$1")" | awk 'END { print $4 }')
    [ "$free" -gt $((needs / 1024)) ] ||
        die $HOST "the image needs $(megabytes "$needs") on the disk of $1, and $(megabytes $((free * 1024))) are free" \
            "make room there, or take another --prefix"
}

# An entry must be a file, folder or link by its listing, and stay below the root by its name and target.
LISTING='
function below(path, depth,    parts, count, i) {
    if (path ~ /^\//) return 0
    count = split(path, parts, "/")
    for (i = 1; i <= count; i++) {
        if (parts[i] == "..") depth--
        else if (parts[i] != "" && parts[i] != ".") depth++
        if (depth < 0) return 0
    }
    return 1
}
{
    kind = substr($0, 1, 1)
    sub(/^[^ ]+ +[^ ]+ +[^ ]+ +[^ ]+ +[^ ]+ /, "")
    cut = index($0, " -> ")
    name = cut ? substr($0, 1, cut - 1) : $0
    good = kind ~ /[-dl]/ && (kind == "l") == (cut > 0) && !(("/" name "/") ~ /\/\.\.\//) && below(name, 0)
    if (good && cut) good = below(substr($0, cut + 4), split(name, parts, "/") - 1)
    if (!good) { print name; exit }
}'

# unpack_layer OFFSET SIZE TITLE ROOT
unpack_layer() {
    wrong=$(slice "$1" "$2" | gzip -dc | tar -tvf - | awk "$LISTING")
    [ -z "$wrong" ] || die $SEAL "$3 has an entry that no bundle has: $wrong" "export the bundle again"
    # the name is busybox's: its links with .. in them are among those that were checked
    slice "$1" "$2" | gzip -dc | EXTRACT_UNSAFE_SYMLINKS=1 tar -xof - -C "$4" ||
        die $HOST "$3 could not be unpacked" "see that the disk of $4 has room"
}

# unpack_file SHA256 OFFSET SIZE TITLE INNER_OFFSET INNER_SIZE FILE: a layer of one plain file, checked as it is written
unpack_file() {
    mkdir -p "${7%/*}"
    found=$({
        slice "$2" "$5"
        slice $(($2 + $5)) "$6" | tee "$7"
        slice $(($2 + $5 + $6)) $(($3 - $5 - $6))
    } | digest)
    [ "$(size_of "$7")" -eq "$6" ] || die $HOST "$7 could not be written" "see that its disk has room"
    [ "$found" = "$1" ] || damaged "$4"
}

# unpack ROOT: the image's files
unpack() {
    while read -r role sha256 offset size _ title inner inner_size file; do
        [ -n "$title" ] || continue
        say "unpack   $title ($(megabytes "$size"))"
        case $role in
        layer)
            check_member "$sha256" "$offset" "$size" "$title"
            unpack_layer "$offset" "$size" "$title" "$1"
            ;;
        *) unpack_file "$sha256" "$offset" "$size" "$title" "$inner" "$inner_size" "$1/$file" ;;
        esac
    done <<MEMBERS_END
$(members layer file weights)
MEMBERS_END
    chmod -R go-w "$1"
}

# listed ROOT: the files of the image as its bundle.json lists them, in lines of sha256sum
listed() {
    sed -n 's|^{"path": "/\([^"]*\)", "size": [0-9]*, "digest": "sha256:\([0-9a-f]\{64\}\)".*|\2  \1|p' "$1/pih/bundle.json"
}

# unlisted ROOT LIST: files that are there and not in the list
unlisted() (
    cd "$1"
    find . -type f | sed 's|^\./||' | awk 'NR == FNR { known[substr($0, 67)] = 1; next } !($0 in known)' "$2" -
)

# shape ROOT: what is no plain file, each with what it is, and the plain files that may be run
shape() (
    cd "$1"
    find . -type d | sed 's|^|folder |'
    find . -type l | while read -r name; do printf 'link %s -> %s\n' "$name" "$(readlink "$name")"; done
    find . -type f -perm -100 | sed 's|^|program |'
    find . ! -type d ! -type l ! -type f | sed 's|^|other |'
)

# reshaped ROOT LIST: the first thing of another kind or target than the list says, if there is one
reshaped() {
    shape "$1" | awk '
        NR == FNR { known[$0] = 1; next }
        !($0 in known) { found = $0; exit }
        { delete known[$0] }
        END {
            for (line in known) if (found == "") found = line
            if (found != "") { sub(/^[a-z]* [.]\/?/, "", found); print found }
        }' "$2" -
}

# changed ROOT LIST: the first file that is not what the list says, if one is not
changed() (
    cd "$1"
    { sha256sum -c "$2" 2>/dev/null || :; } | grep -v ': OK$' | sed 's/: FAILED.*//' | head -n 1
)

# record ROOT LIST: the digests of all files, as the bundle gives them where it does. Weights were read as they were written.
record() {
    listed "$1" >"$2"
    grep -v "  $WEIGHTS_PATH\$" "$2" >"$2.read"
    wrong=$(changed "$1" "$2.read")
    rm "$2.read"
    [ -z "$wrong" ] || die $HOST "$1/$wrong is not what was unpacked" "see that its disk works"
    wrong=$(unlisted "$1" "$2" | grep -v -x -e pih/bundle.json -e "$WEIGHTS_PATH" -e "$DIGESTS_PATH" || :)
    [ -z "$wrong" ] || die $SEAL "the image has files that its bundle.json does not list: $wrong" "build the bundle again"
}

# list_rest ROOT LIST: the rest, which no bundle lists; weights of this file were read as they were written
list_rest() (
    cd "$1"
    members weights | awk '{ print $2 "  " $9 }' >>"$2"
    unlisted . "$2" | while read -r name; do sha256sum "$name"; done >>"$2"
)
