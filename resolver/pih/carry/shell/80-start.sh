# Starting the worker: under bwrap where that works, else by the bundle's own ld.so. Its lock says what of the host it may
# reach: DEVICES and PATHS are patterns of plain letters, each with one match at least; NODES may have none, the driver says
# why; DRIVERS are its libraries, which the host's loader finds.

# granted: their matches
granted() {
    for pattern in "$@"; do
        found=
        for match in $pattern; do
            [ ! -e "$match" ] || found=yes
            [ ! -e "$match" ] || echo "$match"
        done
        [ -n "$found" ] || die $HOST "the bundle needs $pattern, which this host has not" "install the device's driver"
    done
}

# present: the matches that there are
present() {
    for match in "$@"; do [ ! -e "$match" ] || echo "$match"; done
}

# driver NAME: where the host has a library for this processor
driver() {
    PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null |
        sed -n "s/^[[:space:]]*$1 (libc6,\(x86-64\|AArch64\)[^)]*) => //p" | head -n 1
}

# drivers: file of the host and name, a line each
drivers() {
    for name in $DRIVERS; do
        path=$(driver "$name")
        [ -n "$path" ] || die $HOST "the bundle needs $name, which this host has not" "install the device's driver"
        [ -e "$path" ] || die $HOST "this host's loader finds $name at $path, and nothing is there" \
            "ldconfig, as root, makes its cache anew"
        echo "$path $name"
    done
}

# mount_points ROOT: a sandbox with a read-only root cannot make them
mount_points() {
    mkdir -p "$1/dev" "$1/proc" "$1/tmp" "$1/${WEIGHTS_PATH%/*}"
    for name in $DRIVERS; do mkdir -p "$1$DRIVER_FOLDER" && : >"$1$DRIVER_FOLDER/$name"; done
    for pattern in $PATHS; do
        for match in $pattern; do
            if [ -d "$match" ]; then
                mkdir -p "$1$match"
            elif [ -e "$match" ] && [ ! -e "$1$match" ]; then
                mkdir -p "$1${match%/*}" && : >"$1$match"
            fi
        done
    done
}

# bwrap_trouble: why there is no sandbox; nothing where there is one
bwrap_trouble() {
    if ! command -v bwrap >/dev/null 2>&1; then
        echo "bwrap is not installed (package bubblewrap)"
    elif ! bwrap --unshare-all --die-with-parent --ro-bind / / --proc /proc true >/dev/null 2>&1; then
        echo "bwrap does not work on this host"
    fi
}

# host_value NAME: sets `value` to what this variable has here; fails where it is not set. Names are plain letters.
host_value() {
    value=
    eval "[ \"\${$1+set}\" = set ]" || return 1
    eval "value=\$$1"
}

# tell: the worker as bwrap's information names it; bwrap itself where it has not begun yet
tell() {
    told=yes
    [ -n "$child" ] || return 0
    worker=$(sed -n 's/.*"child-pid": *\([0-9]*\).*/\1/p' "$info")
    kill -TERM "${worker:-$child}" 2>/dev/null || :
}

# under_bwrap ROOT LISTEN...: bwrap passes no signal on, so this shell waits, and tells the worker
under_bwrap() {
    root=$1
    shift
    # a pattern is split and filled in on purpose, here and below
    devices=$(granted $DEVICES) || exit
    paths=$(granted $PATHS) || exit
    libraries=$(drivers) || exit
    for path in $devices $(present $NODES); do set -- --dev-bind "$path" "$path" "$@"; done
    for path in $paths; do set -- --ro-bind "$path" "$path" "$@"; done
    while read -r path name; do
        [ -z "$name" ] || set -- --ro-bind "$path" "$DRIVER_FOLDER/$name" "$@"
    done <<LIBRARIES_END
$libraries
LIBRARIES_END
    scratch
    info=$SCRATCH/bwrap
    while read -r setting; do
        set -- --setenv "${setting%%=*}" "${setting#*=}" "$@"
    done <<ENVIRONMENT_END
$ENVIRONMENT
ENVIRONMENT_END
    for name in $VARIABLES; do
        if host_value "$name"; then set -- --setenv "$name" "$value" "$@"; fi
    done
    # in a group of its own, where that can be had: what is sent to all of this one reaches the worker through `tell` alone
    own_group=$(command -v setsid || :)
    child='' told=''
    trap tell HUP INT TERM
    $own_group bwrap --unshare-all --share-net --die-with-parent --as-pid-1 --info-fd 3 \
        --uid 65532 --gid 65532 --cap-drop ALL --hostname pih \
        --ro-bind "$root" / --proc /proc --dev /dev --tmpfs /tmp --chdir / --clearenv "$@" 3>"$info" &
    child=$!
    [ -z "$told" ] || tell
    while :; do
        code=0
        wait $child || code=$?
        kill -0 $child 2>/dev/null || break
    done
    rm -rf "$SCRATCH"
    trap - EXIT # the worker's own exit code
    exit $code
}

# directly ROOT LISTEN...: this process becomes the worker, and so gets its signals
directly() {
    root=$1
    shift
    granted $DEVICES $PATHS >/dev/null
    found=$(drivers) || exit
    libraries=
    for folder in $LIBRARIES; do libraries=$libraries${libraries:+:}$root/$folder; done
    while read -r path name; do
        [ -z "$name" ] || libraries=$libraries:${path%/*}
    done <<LIBRARIES_END
$found
LIBRARIES_END
    set -- "$root/$LOADER" --library-path "$libraries" "$root/$PYTHON" -I -B -X utf8 "$root/$ENTRY" "$@"
    while read -r setting; do
        set -- "$setting" "$@"
    done <<ENVIRONMENT_END
$ENVIRONMENT
ENVIRONMENT_END
    for name in $VARIABLES; do
        if host_value "$name"; then set -- "$name=$value" "$@"; fi
    done
    exec env -i "$@"
}

# The generation that runs is started by the script that came with it: another file's constants are not its own.
verb_start() {
    find_prefix "$PREFIX"
    now=$(current)
    own=$PREFIX/generations/$now/pih
    [ -n "$now" ] && [ -r "$own" ] || die $SEAL "no generation of $PREFIX is the current one" "install, or rollback N"
    [ "$0" = "$own" ] ||
        exec sh "$own" start --prefix "$PREFIX" ${LISTEN:+--listen "$LISTEN"} ${DIRECT:+--no-sandbox}
    check_host
    root=$PREFIX/generations/$now/root
    [ -e "$root/$WEIGHTS_PATH" ] ||
        die $HOST "the deployment has no weights: they are delivered apart" "install it with --weights FILE"
    if [ -n "$LISTEN" ]; then
        [ "$MAY_LISTEN" = yes ] || die $HOST "no plugin of the bundle may listen on a port" "leave --listen out"
        set -- --listen "$LISTEN"
    else
        set --
    fi
    reason=$(bwrap_trouble)
    [ -z "$DIRECT" ] || reason="--no-sandbox"
    say "start    $NAME $VERSION, generation $now, sha256:$IMAGE"
    if [ -n "$reason" ]; then
        say "pih: without a sandbox: $reason"
        directly "$root" "$@"
    else
        under_bwrap "$root" "/$ENTRY" "$@"
    fi
}
