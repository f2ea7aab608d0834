verb_verify() {
    check_sizes
    check_frame
    check_members $SMALL
    check_signatures
    check_members layer file weights
    if [ -n "$JSON" ]; then
        printf '{"name": "%s", "version": "%s", "image": "sha256:%s", "lock": "sha256:%s", "integrity": true, "signed": %s, "weights_named": %s}\n' \
            "$NAME" "$VERSION" "$IMAGE" "$LOCK" "$([ -n "$SIGNERS" ] && echo true || echo false)" \
            "$([ "$WEIGHTS_NAMED" = yes ] && echo true || echo false)"
        return
    fi
    printf 'name       %s %s\nimage      sha256:%s\nintegrity  ok, %s\nvouched    %s\n' \
        "$NAME" "$VERSION" "$IMAGE" "$(megabytes "$PAYLOAD_SIZE") in $PART_COUNT file(s)" "$(vouched)"
}

# archive: the image layout as engines load it; weights that came apart stay behind
archive() {
    end=$(members weights | awk 'NR == 1 { print $3 - 512 }')
    if [ -z "$end" ]; then
        slice 0 "$PAYLOAD_SIZE"
    else
        slice 0 "$end"
        dd if=/dev/zero bs=512 count=2 2>/dev/null
    fi
}

verb_load() {
    engine=$ARGUMENT
    for program in podman docker ctr; do
        [ -n "$engine" ] || ! command -v $program >/dev/null 2>&1 || engine=$program
    done
    case $engine in
    podman | docker) set -- "$engine" load ;;
    ctr) set -- ctr image import - ;;
    '') die $HOST "this host has neither podman, docker nor ctr" "install --prefix DIR needs none of them" ;;
    *) die $USAGE_CODE "$engine is no engine that loads images" "podman, docker or ctr" ;;
    esac
    verb_verify >&2
    archive | "$@" || die $HOST "$engine does not load the image" "see that \`$engine info\` works"
}

check_weights() {
    if [ -n "$WEIGHTS" ]; then
        [ "$DELIVERY" = separate ] || die $USAGE_CODE "the image has its weights inside" "leave --weights out"
        [ -z "$(members weights)" ] || die $USAGE_CODE "this file brings the weights" "leave --weights out"
        [ -f "$WEIGHTS" ] && [ -r "$WEIGHTS" ] || die $USAGE_CODE "cannot read $WEIGHTS" "give the file that pih weights pack made"
    elif [ "$DELIVERY" = separate ] && [ -z "$(members weights)" ]; then
        die $USAGE_CODE "$NAME delivers its weights separately" "give --weights FILE, made by pih weights pack"
    fi
}

# finish: whatever ends the script, nothing half-made stays
finish() {
    code=$?
    trap - EXIT
    trap '' HUP INT QUIT TERM
    case $code in
    0 | 2 | 8 | 9 | 1[0-9][0-9]) ;;
    *)
        say "pih: error: a program of this host failed with code $code"
        say "  to fix: see what it said; \`sh -x $0 $VERB ...\` shows where"
        code=$HOST
        ;;
    esac
    [ -z "$partial" ] || rm -rf "$partial"
    [ -z "$HELD" ] || rm -f "$HELD"
    close_prefix
    close_unit
    [ -z "$SCRATCH" ] || rm -rf "$SCRATCH"
    exit $code
}

# find_self: the prefix of the installed copy that this is, by whatever name it was called
find_self() {
    self=$(readlink -f "$0" 2>/dev/null) || return 0
    case $self in
    */generations/*/pih) PREFIX=${self%/generations/*} ;;
    esac
}

main() {
    SIGNERS='' HELD='' ABOVE='' LOCKED='' UNITS_ABOVE='' UNIT_TEXT='' SCRATCH='' partial=''
    read_options "${@:-help}"
    case $VERB in
    help) printf '%s\n' "$USAGE" && return ;;
    version) printf '%s %s sha256:%s\n' "$NAME" "$VERSION" "$IMAGE" && return ;;
    esac
    need awk sed sha256sum dd ls
    case $VERB in
    verify | load) ;;
    *)
        need tar gzip df du mv ln rm rmdir mkdir chmod sort head grep find tee uname sync readlink tr
        [ -n "$PREFIX" ] || find_self
        [ -n "$PREFIX" ] || die $USAGE_CODE "$VERB needs --prefix DIR" "for example --prefix /opt/pih"
        ;;
    esac
    trap finish EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 131' QUIT
    trap 'exit 143' TERM
    "verb_$VERB"
}

main "$@"
exit
