# The keys that were given, and who of this host holds the bundle against them.

# with_pih: it reads the image from an archive, for which there must be room
with_pih() {
    set --
    while IFS= read -r key; do set -- "$@" --key "$key"; done <<KEYS_END
$KEYS
KEYS_END
    archive >"$SCRATCH/image.tar" || die $HOST "no room in ${TMPDIR:-/tmp} for the image" "set TMPDIR to another folder"
    pih verify "$@" "$SCRATCH/image.tar" >&2 </dev/null || die $SEAL "pih does not verify the image" "see what it says"
    rm "$SCRATCH/image.tar"
}

# check_key FILE: one public key
check_key() {
    [ -f "$1" ] && [ -r "$1" ] || die $USAGE_CODE "cannot read the key $1" "give the file of a public key in PEM"
    ! grep -q 'PRIVATE KEY' "$1" ||
        die $USAGE_CODE "$1 is a private key, which stays with its owner" "give its public half, such as $1.pub"
    [ "$(grep -c '^-----BEGIN' "$1")" -le 1 ] ||
        die $USAGE_CODE "$1 holds several keys" "give each in a file of its own: --key A --key B"
}

# check_kind KEY
check_kind() {
    case $(openssl pkey -pubin -in "$1" -noout -text_pub 2>/dev/null || :) in
    ED25519*) ;;
    '') die $USAGE_CODE "$1 is no public key" "give one in PEM" ;;
    *) die $USAGE_CODE "$1 is not an ed25519 key, as those are that sign bundles" "give the key of whoever sealed it" ;;
    esac
}

# each_key FUNCTION: for every key that was given
each_key() {
    while IFS= read -r key; do "$1" "$key"; done <<KEYS_END
$KEYS
KEYS_END
}

# signed_too KEY: it has signed, as the text for people goes on
signed_too() {
    SIGNERS=$SIGNERS${SIGNERS:+, }"by the key $1"
}

# check_signatures: every key that was given has signed. openssl reads where the bytes lie; pih needs a copy of all of them
check_signatures() {
    [ -n "$KEYS" ] || return 0
    each_key check_key
    [ -n "$(members envelope)" ] || die $SEAL "the bundle carries no signature" "seal it before it is exported: pih seal"
    case $(openssl version 2>/dev/null || :) in
    "OpenSSL "[3-9]*)
        need base64 grep tr sort uniq tail
        each_key check_kind
        scratch
        each_key with_openssl
        ;;
    *)
        command -v pih >/dev/null 2>&1 || die $HOST "nothing on this host can check a signature" \
            "install openssl 3 or pih, or leave --key out: then it is integrity only"
        scratch
        with_pih
        ;;
    esac
    each_key signed_too
}
