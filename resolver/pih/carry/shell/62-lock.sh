# One change of a prefix at a time, and each from a clean one to what is on the disk.

# lock_prefix: one change at a time. With flock, the lock ends with its last process, however that ends.
lock_prefix() {
    if command -v flock >/dev/null 2>&1; then
        exec 9>>"$PREFIX/.pih/lock"
        flock -n 9 || die $HOST "another process is changing $PREFIX" "wait until it has ended"
    else
        changing=$PREFIX/.pih/changing
        ln -s "$$" "$changing" 2>/dev/null || take_over "$(readlink "$changing" || :)"
        HELD=$changing
        : >>"$PREFIX/.pih/lock"
    fi
    LOCKED=yes
    mkdir -p "$PREFIX/generations"
    clean
}

# take_over PID: the link that a killed process left; only one of several takes it
take_over() {
    [ -n "$1" ] && [ ! -d "/proc/$1" ] && mkdir "$PREFIX/.pih/taken-$1" 2>/dev/null &&
        mv "$changing" "$PREFIX/.pih/taken-$1/" && ln -s "$$" "$changing" 2>/dev/null ||
        die $HOST "another process is changing $PREFIX" "wait until it has ended; else remove $changing"
    rm -rf "$PREFIX/.pih/taken-$1"
}

# clean: what an interrupted change left
clean() {
    for left in "$PREFIX"/generations/*.partial "$PREFIX"/generations/*.removed; do
        number=${left##*/}
        case ${number%.*} in *[!0-9]* | '') ;; *) rm -rf "$left" ;; esac
    done
    rm -rf "$PREFIX/.pih/switch"
}

# flush: what was written is on the disk before what comes next
flush() {
    sync -f "$PREFIX" 2>/dev/null || sync || die $HOST "the disk of $PREFIX did not take what was written" "see that it has room"
}
