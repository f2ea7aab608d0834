IFS=
set -efu
CHECKED=$(dd if=$0 bs=512 count=$HEADER_BLOCKS 2>/dev/null | sed 3s/=.*/=/ | sha256sum)
if [ $CHECKED = $SELF\ \ - ]; then
    eval $(dd if=$0 bs=512 count=$HEADER_BLOCKS 2>/dev/null | sed 1,/^#REST/d)
    exit
fi
echo $0: its script is damaged, or sha256sum is missing: nothing of it was run >&2
exit $((4 + 4))
"
)
'
)
`
)
#REST
