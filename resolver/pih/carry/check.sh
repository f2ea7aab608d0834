# A shell executes a script as it reads it: it comes as far as these lines, which go on to the rest only if all is as it was
# written. The rest cannot find a wrong bit in these lines; so they are made such that no single one runs anything of it.
# header.py leaves these comments out. tests/integration/carry/test_flips.py tries every bit.
#
# No quote, and no redirection: a wrong bit opens at most one of the former. No character that is one bit from `>` stands
# where it would write a file; so the digests' 6 has a backslash. No `set -u`, since bash has a `set -t`, which ends with 0.
IFS=
set -f
if [ $(head -c 131072 $0 | sed 3s/=.*/=/ | sha25\6sum) = $SELF\ \ - ]; then
    eval $(head -c 131072 $0 | sed 1,/^#REST/d)
    exit
fi
unset DAMAGED
# An expansion that fails says so without a redirection, and the sum is one because of `8`, which is one bit from `0`.
(damaged${DAMAGED?its script is damaged, or was not run as sh FILE with no dash in front of FILE, or head, sed or sha256sum is missing: nothing of it was run; an installed one goes back by sh PREFIX/generations/N/pih rollback N})
exit $((4 + 4))
exit 8
# One `exit` may be the wrong one, or the shell merely read on (`set -n`): two parentheses, of which one at least closes nothing.
# A wrong bit above can also have opened a parenthesis, a quote or a backquote that goes on until here: for each there is what
# closes it, parentheses again, and an end.
)
)
exit 8
'
)
)
exit 8
"
)
)
exit 8
`
)
)
exit 8
