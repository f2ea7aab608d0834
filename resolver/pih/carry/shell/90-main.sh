verb_verify() {
    check_sizes
    check_frame
    check_members $SMALL
    [ -z "$KEY" ] || check_signature "$KEY"
    check_members layer file weights
    if [ -n "$JSON" ]; then
        printf '{"name": "%s", "version": "%s", "image": "sha256:%s", "lock": "sha256:%s", "integrity": true, "signed": %s, "weights_named": %s}\n' \
            "$NAME" "$VERSION" "$IMAGE" "$LOCK" "$([ "$SIGNED" = yes ] && echo true || echo false)" \
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
    JSON='' verb_verify >&2
    archive | "$@" || die $HOST "$engine does not load the image" "see that \`$engine info\` works"
}

check_weights() {
    if [ -n "$WEIGHTS" ]; then
        [ "$DELIVERY" = separate ] || die $USAGE_CODE "the image has its weights inside" "leave --weights out"
        [ -z "$(members weights)" ] || die $USAGE_CODE "this file brings the weights" "leave --weights out"
        [ -r "$WEIGHTS" ] || die $USAGE_CODE "cannot read $WEIGHTS" "give the file that pih weights pack made"
    elif [ "$DELIVERY" = separate ] && [ -z "$(members weights)" ]; then
        die $USAGE_CODE "$NAME delivers its weights separately" "give --weights FILE, made by pih weights pack"
    fi
}

# finish: whatever ends the script, nothing half-made stays
finish() {
    code=$?
    trap - EXIT
    case $code in
    0 | 2 | 8 | 9 | 1[0-9][0-9]) ;;
    *) say "pih: error: a program of this host failed with code $code" && code=$HOST ;;
    esac
    [ -z "$partial" ] || rm -rf "$partial"
    [ -z "$HELD" ] || rm -f "$HELD"
    close_prefix
    [ -z "$SCRATCH" ] || rm -rf "$SCRATCH"
    exit $code
}

main() {
    VERB=${1:-help}
    [ $# -eq 0 ] || shift
    PREFIX='' KEY='' WEIGHTS='' KEEP=3 UNIT='' UNIT_DIR='' OTHER='' LISTEN='' DIRECT='' CHECK='' JSON='' ARGUMENT=''
    SIGNED=no HELD='' ABOVE='' SCRATCH='' partial=''
    case $VERB in
    help | --help | -h | verify | load | install | upgrade | start | status | rollback | uninstall) ;;
    *) die $USAGE_CODE "there is no verb $VERB" "sh $0 help" ;;
    esac
    while [ $# -gt 0 ]; do
        case $1 in
        --prefix | --key | --weights | --keep | --unit-dir | --listen)
            [ $# -gt 1 ] || die $USAGE_CODE "$1 needs a value" "sh $0 help"
            case $1 in
            --prefix) PREFIX=$2 ;;
            --key) KEY=$2 ;;
            --weights) WEIGHTS=$2 ;;
            --keep) KEEP=$2 ;;
            --unit-dir) UNIT_DIR=$2 ;;
            --listen) LISTEN=$2 ;;
            esac
            shift
            ;;
        --systemd) UNIT=yes ;;
        --other-deployment) OTHER=yes ;;
        --no-sandbox) DIRECT=yes ;;
        --check) CHECK=yes ;;
        --json) JSON=yes ;;
        -*) die $USAGE_CODE "there is no option $1" "sh $0 help" ;;
        *)
            case $VERB:$ARGUMENT in rollback: | load:) ARGUMENT=$1 ;; *)
                die $USAGE_CODE "$1 is one word too many" "sh $0 help" ;;
            esac
            ;;
        esac
        shift
    done
    case $KEEP in '' | 0* | *[!0-9]*) die $USAGE_CODE "--keep $KEEP is no number of generations" "1 or more" ;; esac
    case $LISTEN in unix:* | *[!]A-Za-z0-9.:_[-]*)
        die $USAGE_CODE "cannot listen at $LISTEN" "HOST:PORT" ;;
    esac
    need awk sed sha256sum dd ls
    case $VERB in
    help | --help | -h) printf '%s\n' "$USAGE" && return ;;
    verify | load) ;;
    install | upgrade | start | status | rollback | uninstall)
        need tar gzip df du mv ln rm mkdir sort head grep find tee uname sync readlink tr
        # the installed copy knows where it is
        if [ -z "$PREFIX" ] && [ -d "${0%/*}/generations" ]; then PREFIX=${0%/*}; fi
        [ -n "$PREFIX" ] || die $USAGE_CODE "$VERB needs --prefix DIR" "for example --prefix /opt/pih"
        ;;
    esac
    trap finish EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    trap 'exit 129' HUP
    if [ -n "$KEY" ]; then SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/pih-XXXXXX"); fi
    "verb_$VERB"
}

main "$@"
exit
