USAGE="usage: sh $0 VERB [OPTIONS]

  verify     [--key PEM]... [--json]      check every byte of this file, and who signed it
  install    --prefix DIR [--key PEM]... [--weights FILE] [--keep N] [--systemd [--unit-dir DIR]]
  upgrade    --prefix DIR [--other-deployment] [as install]
  start      --prefix DIR [--listen HOST:PORT] [--no-sandbox]     in the foreground
  status     --prefix DIR [--check] [--json]
  rollback   --prefix DIR [N]             go back to N, or to what was current before
  uninstall  --prefix DIR
  load       [podman|docker|ctr] [--key PEM]...                   hand the image to a container engine
  version                                 what this file carries

--prefix=DIR is --prefix DIR, and so with all. Each --key must have signed. The installed copy knows where it is, without --prefix.
Example: sh $0 install --prefix /opt/pih && sh /opt/pih/pih start
Exit codes: 2 usage, 8 damaged or not signed, 9 this host or its disk."

# takes VERB: its options; `=` stands behind those with a value, brackets around a word without dashes
takes() {
    case $1 in
    verify) echo "--key= --json" ;;
    install) echo "--prefix= --key= --weights= --keep= --systemd --unit-dir=" ;;
    upgrade) echo "--prefix= --key= --weights= --keep= --systemd --unit-dir= --other-deployment" ;;
    start) echo "--prefix= --listen= --no-sandbox" ;;
    status) echo "--prefix= --check --json" ;;
    rollback) echo "--prefix= [N]" ;;
    uninstall) echo "--prefix=" ;;
    load) echo "[podman|docker|ctr] --key=" ;;
    help | version) ;;
    *) die $USAGE_CODE "there is no verb $1" "sh $0 help" ;;
    esac
}

# once WHAT OLD: of two values one would be forgotten
once() {
    [ -z "$2" ] || die $USAGE_CODE "$1 is given twice" "give it once"
}

# take_value OPTION VALUE
take_value() {
    [ -n "$2" ] || die $USAGE_CODE "$1 needs a value" "sh $0 help"
    # a path, which no program is to take for an option
    case $1:$2 in --keep:* | --listen:*) ;; *:-*) set -- "$1" "./$2" ;; esac
    case $1 in
    --prefix) once "$1" "$PREFIX" && PREFIX=$2 ;;
    --weights) once "$1" "$WEIGHTS" && WEIGHTS=$2 ;;
    --keep) once "$1" "$KEEP" && KEEP=$2 ;;
    --unit-dir) once "$1" "$UNIT_DIR" && UNIT_DIR=$2 ;;
    --listen) once "$1" "$LISTEN" && LISTEN=$2 ;;
    --key)
        case $2 in *"$NEWLINE"*) die $USAGE_CODE "cannot read the key $2" "give a file whose name is one line" ;; esac
        KEYS=$KEYS${KEYS:+$NEWLINE}$2
        ;;
    esac
}

take_flag() {
    case $1 in
    --systemd) UNIT=yes ;;
    --other-deployment) OTHER=yes ;;
    --no-sandbox) DIRECT=yes ;;
    --check) CHECK=yes ;;
    --json) JSON=yes ;;
    esac
}

NEWLINE='
'

# read_options VERB ARGUMENT...: sets the verb and what it takes; whatever it does not take is refused
read_options() {
    PREFIX='' KEYS='' WEIGHTS='' KEEP='' UNIT='' UNIT_DIR='' OTHER='' LISTEN='' DIRECT='' CHECK='' JSON='' ARGUMENT=''
    case $1 in --help | -h) VERB=help ;; --version) VERB=version ;; *) VERB=$1 ;; esac
    shift
    taken=$(takes "$VERB") || exit
    while [ $# -gt 0 ]; do
        case $1 in
        --help | -h) VERB=help && return ;;
        --*=*)
            case " $taken " in *" ${1%%=*}= "*) ;; *) no_option "$1" ;; esac
            take_value "${1%%=*}" "${1#*=}"
            ;;
        -*[!a-z-]*) no_option "$1" ;;
        -*)
            case " $taken " in
            *" $1= "*)
                take_value "$1" "${2-}"
                shift
                ;;
            *" $1 "*) take_flag "$1" ;;
            *) no_option "$1" ;;
            esac
            ;;
        *) take_word "$1" ;;
        esac
        shift
    done
    check_options
}

# no_option WORD
no_option() {
    die $USAGE_CODE "$VERB has no option $1" "it takes ${taken:-nothing}; see sh $0 help"
}

# take_word WORD: at most one, and only of verbs that take one
take_word() {
    case $taken:$ARGUMENT in *]*:) ;; *) die $USAGE_CODE "$1 is one word too many" "sh $0 help" ;; esac
    [ -n "$1" ] || die $USAGE_CODE "an empty word names nothing" "leave it out"
    ARGUMENT=$1
}

check_options() {
    KEEP_ASKED=$KEEP KEEP=${KEEP:-3}
    case $KEEP in 0* | *[!0-9]* | ??????*) die $USAGE_CODE "--keep $KEEP is no number of generations" "1 or more" ;; esac
    [ -z "$LISTEN" ] || check_listen "${LISTEN##*:}"
    [ -z "$UNIT_DIR" ] || [ -n "$UNIT" ] || die $USAGE_CODE "--unit-dir is where --systemd writes" "give --systemd too"
}

# check_listen PORT
check_listen() {
    case $LISTEN in unix:* | *[!]A-Za-z0-9.:_[-]*) ;; *:*)
        case $1 in '' | *[!0-9]* | ??????*) ;; *) [ "$1" -gt 65535 ] || return 0 ;; esac ;;
    esac
    die $USAGE_CODE "cannot listen at $LISTEN" "HOST:PORT, with a port up to 65535"
}
