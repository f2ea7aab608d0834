# What the host must be and have.

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

# free_kilobytes FOLDER: nothing where df cannot say, as in a root that is no mount point
free_kilobytes() {
    { df -Pk "$1" 2>/dev/null || :; } | sed -n 's/^.* \([0-9]\{1,\}\) \{1,\}[0-9]\{1,\}% .*$/\1/p' | tail -n 1
}

# check_room FOLDER
check_room() {
    needs=$UNPACKED
    [ -z "$WEIGHTS" ] || needs=$((needs + $(size_of "$WEIGHTS")))
    free=$(free_kilobytes "$(nearest "$1")")
    if [ -z "$free" ]; then
        [ -n "${room_is_unknown:-}" ] || say "pih: df does not know what is free on the disk of $1"
        room_is_unknown=1 # said once, though an install asks before and after it has made its folders
        return
    fi
    [ "$free" -gt $((needs / 1024)) ] ||
        die $HOST "the image needs $(megabytes "$needs") on the disk of $1, and $(megabytes $((free * 1024))) are free" \
            "make room there, or take another --prefix"
}
