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

MOST_SIGNATURES=16
DOCUMENTS="https://cyclonedx.org/bom https://spdx.dev/Document"
PREDICATES="https://cyclonedx.org/bom https://slsa.dev/provenance/v1 https://spdx.dev/Document"

# fingerprint KEY: as signatures name it
fingerprint() {
    openssl pkey -pubin -in "$1" -outform DER 2>/dev/null | tail -c 32 | digest | sed 's/^\(.\{32\}\).*/ed25519:\1/'
}

# signatures: of the envelope, a line each
signatures() {
    tr '{' '\n' <"$SCRATCH/envelope" | sed -n '/"sig"/s/}.*//p'
}

# tried ID: those that name this key, then others; each costs time, and anybody can add some
tried() {
    signatures | awk -v id="\"$1\"" -v most=$MOST_SIGNATURES '
        index($0, id) { if (found < most) { found++; print }; next }
        count < most { rest[count++] = $0 }
        END { for (i = 0; i < count && found + i < most; i++) print rest[i] }'
}

# signed_by KEY ID OFFSET SIZE: whether a signature of the envelope is of this key, and its statement of this image
signed_by() {
    slice "$3" "$4" >"$SCRATCH/envelope"
    field payload <"$SCRATCH/envelope" | base64 -d >"$SCRATCH/statement" 2>/dev/null || return 1
    # canonical JSON: `predicateType` and `subject` are the statement's last keys
    read -r subject predicate name <<SUBJECT_END
$(sed -n 's/.*,"predicateType":"\([^"\\ ]*\)","subject":\[{"digest":{"sha256":"\([0-9a-f]\{64\}\)"},"name":"\([^"\\ ]*\)"}\]}$/\2 \1 \3/p' "$SCRATCH/statement")
SUBJECT_END
    [ "$subject" = "$IMAGE" ] || return 1
    [ -z "$(signatures | sort | uniq -d)" ] || die $SEAL "a statement has a signature twice" "have the bundle sealed again"
    printf 'DSSEv1 28 application/vnd.in-toto+json %s ' "$(size_of "$SCRATCH/statement")" >"$SCRATCH/signed"
    cat "$SCRATCH/statement" >>"$SCRATCH/signed"
    tried "$2" | while read -r line; do
        printf '%s' "$line" | field sig | base64 -d >"$SCRATCH/signature" 2>/dev/null || continue
        if openssl pkeyutl -verify -pubin -inkey "$1" -rawin \
            -in "$SCRATCH/signed" -sigfile "$SCRATCH/signature" >/dev/null 2>&1; then
            echo good
            break
        fi
    done | grep -q good
}

# check_name: what the statement calls the image is what engines will
check_name() {
    text_of index | grep -qF "\"org.opencontainers.image.ref.name\":\"$name\"" &&
        text_of docker | grep -qF "\"RepoTags\":[\"$name\"]" ||
        die $SEAL "the image has another name than $name, which was signed" "have the bundle exported again"
}

# check_document: what is attached is what the statement states
check_document() {
    want=$(digest <"$SCRATCH/statement")
    members attached | while read -r _ _ offset size _; do
        found=$({
            printf '{"_type":"https://in-toto.io/Statement/v1","predicate":'
            slice "$offset" "$size"
            printf ',"predicateType":"%s","subject":[{"digest":{"sha256":"%s"},"name":"%s"}]}' "$predicate" "$subject" "$name"
        } | digest)
        [ "$found" != "$want" ] || echo good
    done | grep -q good || die $SEAL "the document that $predicate states is not attached" "have the bundle sealed again"
}

# count_of ROLE
count_of() {
    members "$1" | awk 'END { print NR }'
}

# with_openssl KEY: the statements of a seal, each signed by the key; what is attached are they and their documents
with_openssl() {
    id=$(fingerprint "$1") signed=
    while read -r _ sha256 offset size _; do
        signed_by "$1" "$id" "$offset" "$size" ||
            die $SEAL "blob $sha256 is no statement about this image that the key $1 signed" \
                "give the key of whoever sealed it"
        check_name
        case " $DOCUMENTS " in *" $predicate "*) check_document ;; esac
        signed="$signed$predicate
"
    done <<MEMBERS_END
$(members envelope)
MEMBERS_END
    # five manifests, two documents, and the empty configuration of all manifests
    [ "$(printf %s "$signed" | sort | tr '\n' ' ')" = "$PREDICATES " ] && [ "$(count_of attached)" -eq 8 ] &&
        [ "$(text_of index | digests | awk 'END { print NR }')" -eq 6 ] ||
        die $SEAL "what is attached to the image is not what pih seal attaches" "have the bundle sealed again"
    check_chain
}
