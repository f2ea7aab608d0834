# From the layers to a folder. Every entry was checked when the file was exported, and is again by its name here.

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
}
