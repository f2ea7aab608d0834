# disk N: bytes
disk() {
    echo "$(($(du -sk "$PREFIX/generations/$1" | awk '{ print $1 }') * 1024))"
}

# whole N: 'yes', 'unread' where nobody asked, or the file that is not what it was; of a generation whose facts are read
whole() {
    if [ -z "$its_image" ]; then
        echo pih
    elif [ -z "$CHECK" ]; then
        echo unread
    else
        found=$(wrong "$1")
        echo "${found:-yes}"
    fi
}

# status_line MARK N NOTE, of a generation whose facts are read
status_line() {
    printf '%s %-3s %s %s sha256:%s  %s  %s%s\n' "$1" "$2" "$its_name" "$its_version" "$its_image" \
        "$(megabytes "$(disk "$2")")" "$([ "$(about "$2" signed)" = yes ] && echo signed || echo 'integrity only')" "$3"
}

# status_json COMMA N CURRENT WHOLE, the same
status_json() {
    printf '%s{"generation": %s, "current": %s, "name": "%s", "version": "%s", "image": "sha256:%s", "lock": "sha256:%s", ' \
        "$1" "$2" "$3" "$its_name" "$its_version" "$its_image" "$its_lock"
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
        facts "$number"
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
            [ -n "$its_image" ] || its_name=damaged
            status_line "$mark" "$number" "$note"
        fi
    done
    [ -z "$JSON" ] || echo ']}'
    [ -z "$trouble" ] || die $SEAL "not what was installed:$trouble" \
        "sh FILE upgrade --prefix $PREFIX, with the .pih file of that version, installs it anew; sh $PREFIX/generations/N/pih rollback N goes back to a whole one"
}
