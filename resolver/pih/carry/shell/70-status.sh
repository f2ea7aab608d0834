# disk N: bytes
disk() {
    echo "$(($(du -sk "$PREFIX/generations/$1" | awk '{ print $1 }') * 1024))"
}

# own_script FILE: whether the script's third line is its digest
own_script() {
    [ "SELF=$(sed '3s/=.*/=/' "$1" | digest)" = "$(sed -n '3{p;q;}' "$1")" ]
}

# wrong N: the first thing in a generation that is not what was installed, by its name there; nothing where all is
wrong() {
    place=$PREFIX/generations/$1
    for name in about files shape pih; do
        [ -f "$place/$name" ] && [ -s "$place/$name" ] || { echo "$name" && return; }
    done
    own_script "$place/pih" || { echo pih && return; }
    [ -d "$place/root" ] && [ ! -L "$place/root" ] || { echo root && return; }
    {
        changed "$place/root" "$place/files"
        unlisted "$place/root" "$place/files"
        reshaped "$place/root" "$place/shape"
    } | sed -n '1{s|^|root/|;p;}' | tr -d '"\\'
}

# whole N: 'yes', 'unread' where nobody asked, or the file that is not what it was
whole() {
    if [ -z "$CHECK" ]; then
        echo unread
        return
    fi
    found=$(wrong "$1")
    echo "${found:-yes}"
}

status_line() {
    printf '%s %-3s %s %s sha256:%s  %s  %s%s\n' "$1" "$2" "$(about "$2" name)" "$(about "$2" version)" \
        "$(about "$2" image)" "$(megabytes "$(disk "$2")")" \
        "$([ "$(about "$2" signed)" = yes ] && echo signed || echo 'integrity only')" "$3"
}

status_json() {
    printf '%s{"generation": %s, "current": %s, "name": "%s", "version": "%s", "image": "sha256:%s", "lock": "sha256:%s", ' \
        "$1" "$2" "$3" "$(about "$2" name)" "$(about "$2" version)" "$(about "$2" image)" "$(about "$2" lock)"
    printf '"signed": %s, "installed": "%s", "disk_bytes": %s, "running": [%s], "whole": "%s"}' \
        "$([ "$(about "$2" signed)" = yes ] && echo true || echo false)" "$(about "$2" installed)" "$(disk "$2")" \
        "$(users "$2" | tr '\n' ',' | sed 's/,$//')" "$4"
}

verb_status() {
    find_prefix "$PREFIX"
    now=$(current) comma='' trouble=''
    [ -n "$now" ] && [ -d "$PREFIX/generations/$now" ] ||
        die $SEAL "no generation of $PREFIX is the current one" "install, or rollback N"
    [ -z "$JSON" ] || printf '{"prefix": "%s", "generations": [' "$PREFIX"
    for number in $(generations); do
        state=$(whole "$number")
        case $state in yes | unread) ;; *) trouble="$trouble generations/$number/$state" ;; esac
        is=false mark=' '
        [ "$number" != "$now" ] || is=true mark='*'
        if [ -n "$JSON" ]; then
            status_json "$comma" "$number" $is "$state"
            comma=', '
        else
            note=
            running=$(users "$number" | tr '\n' ' ')
            [ -z "$running" ] || note=", runs as process ${running% }"
            [ "$state" = unread ] || note="$note, files: $state"
            status_line "$mark" "$number" "$note"
        fi
    done
    [ -z "$JSON" ] || echo ']}'
    [ -z "$trouble" ] || die $SEAL "not what was installed:$trouble" \
        "sh FILE upgrade --prefix $PREFIX, with the .pih file of that version, installs it anew; or rollback to a whole one"
}
