# What an installed root holds, and whether it still does.

# listed ROOT: the files of the image as its bundle.json lists them, in lines of sha256sum
listed() {
    sed -n 's|^{"path": "/\([^"]*\)", "size": [0-9]*, "digest": "sha256:\([0-9a-f]\{64\}\)".*|\2  \1|p' "$1/pih/bundle.json"
}

# unlisted ROOT LIST: files that are there and not in the list
unlisted() (
    cd "$1"
    find . -type f | sed 's|^\./||' | awk 'NR == FNR { known[substr($0, 67)] = 1; next } !($0 in known)' "$2" -
)

# plain PATH: folders are 755, files 644 or 755, whatever the folder above or the image would have them be
plain() {
    chmod -R u=rwX,go=rX,ug-s,-t "$1"
}

# shape ROOT: what is no plain file, each with what it is, the files that may be run, and what has a mode of its own
shape() (
    cd "$1"
    find . -type d -perm 755 | sed 's|^|folder |'
    find . -type l | while read -r name; do printf 'link %s -> %s\n' "$name" "$(readlink "$name")"; done
    find . -type f -perm 755 | sed 's|^|program |'
    find . -type d ! -perm 755 | sed 's|^|mode |'
    find . -type f ! -perm 644 ! -perm 755 | sed 's|^|mode |'
    find . ! -type d ! -type l ! -type f | sed 's|^|other |'
)

# reshaped ROOT LIST: the first thing of another kind, mode or target than the list says, if there is one
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

# capable ROOT: files that would have rights of their own; a host without getcap cannot say
capable() (
    PATH=$PATH:/usr/sbin:/sbin
    command -v getcap >/dev/null 2>&1 || return 0
    cd "$1"
    getcap -r . 2>/dev/null | sed 's|^\./||; s| =* *cap_.*||'
)

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

# carried_weights: those that this file has beside the image, in lines of sha256sum
carried_weights() {
    members weights | awk '{ print $2 "  " $9 }'
}

# list_rest ROOT LIST: the rest, which no bundle lists; weights of this file were read as they were written
list_rest() (
    cd "$1"
    carried_weights >>"$2"
    unlisted . "$2" | while read -r name; do sha256sum "$name"; done >>"$2"
)
