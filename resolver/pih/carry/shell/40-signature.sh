# A signature: a DSSE envelope in the image layout whose statement names the digest of the image's manifest. What checks
# it comes from the host, never from this file; from the manifest on, the chain is digests: manifest, config, layers.

# text_of ROLE: the bytes of the first member with this role
text_of() {
    members "$1" | {
        read -r _ _ offset size _
        slice "$offset" "$size"
    }
}

# digests: every sha256 that the JSON on stdin names, in order
digests() {
    tr ',{}' '\n\n\n' | sed -n -e 's/.*sha256:\([0-9a-f]\{64\}\)".*/\1/p' -e 's/.*blobs\/sha256\/\([0-9a-f]\{64\}\)".*/\1/p'
}

# check_chain: the manifest names the blobs of MEMBERS and no others; so do the two files that engines start from
check_chain() {
    want=$(members config layer file | awk '{ print $2 }')
    [ "$(text_of manifest | digests)" = "$want" ] ||
        die $SEAL "the image's manifest names other blobs than this file holds" "export the bundle again"
    [ "$(text_of docker | digests)" = "$want" ] ||
        die $SEAL "manifest.json names other blobs than the image's manifest" "export the bundle again"
    others=$(text_of index | digests | while read -r name; do
        members manifest attached | awk -v name="$name" '$2 == name { found = 1 } END { if (!found) print name }'
    done)
    [ -z "$others" ] || die $SEAL "index.json names blobs that this file does not hold" "export the bundle again"
}

# field NAME: the value of the last text field of that name in the JSON on stdin
field() {
    tr -d '\n' | sed -n 's/.*"'"$1"'" *: *"\([A-Za-z0-9+\/=_.-]*\)".*/\1/p'
}

# signed_by KEY OFFSET SIZE: whether a signature of the envelope is of this key, and its statement of this image
signed_by() {
    slice "$2" "$3" >"$SCRATCH/envelope"
    field payload <"$SCRATCH/envelope" | base64 -d >"$SCRATCH/statement" 2>/dev/null || return 1
    # canonical JSON: `subject` is the statement's last key
    subject=$(sed -n 's/.*"subject":\[{"digest":{"sha256":"\([0-9a-f]\{64\}\)"},"name":"[^"\\]*"}\]}$/\1/p' "$SCRATCH/statement")
    [ "$subject" = "$IMAGE" ] || return 1
    printf 'DSSEv1 28 application/vnd.in-toto+json %s ' "$(size_of "$SCRATCH/statement")" >"$SCRATCH/signed"
    cat "$SCRATCH/statement" >>"$SCRATCH/signed"
    tr '{' '\n' <"$SCRATCH/envelope" | grep '"sig"' | while read -r line; do
        printf '%s' "$line" | field sig | base64 -d >"$SCRATCH/signature" 2>/dev/null || continue
        if openssl pkeyutl -verify -pubin -inkey "$1" -rawin \
            -in "$SCRATCH/signed" -sigfile "$SCRATCH/signature" >/dev/null 2>&1; then
            echo good
        fi
    done | grep -q good
}

# with_openssl KEY: each envelope must be signed by the key
with_openssl() {
    while read -r _ sha256 offset size _; do
        signed_by "$1" "$offset" "$size" || die $SEAL "blob $sha256 is no statement about this image that the key $1 signed" \
            "give the key of whoever sealed it"
    done <<MEMBERS_END
$(members envelope)
MEMBERS_END
    check_chain
}

# with_pih KEY: it reads the image from an archive, for which there must be room
with_pih() {
    archive >"$SCRATCH/image.tar" || die $HOST "no room in ${TMPDIR:-/tmp} for the image" "set TMPDIR to another folder"
    pih verify --key "$1" "$SCRATCH/image.tar" >&2 || die $SEAL "pih does not verify the image" "see what it says"
    rm "$SCRATCH/image.tar"
}

# check_signature KEY: openssl reads where the bytes lie; pih needs a copy of all of them
check_signature() {
    [ -r "$1" ] || die $USAGE_CODE "cannot read the key $1" "give a public key in PEM"
    [ -n "$(members envelope)" ] || die $SEAL "the bundle carries no signature" "seal it before it is exported: pih seal"
    case $(openssl version 2>/dev/null || :) in
    "OpenSSL "[3-9]*)
        need base64 grep tr
        with_openssl "$1"
        ;;
    *)
        command -v pih >/dev/null 2>&1 || die $SEAL "nothing on this host can check a signature" \
            "install openssl 3 or pih, or leave --key out: then it is integrity only"
        with_pih "$1"
        ;;
    esac
    SIGNED=yes
}
