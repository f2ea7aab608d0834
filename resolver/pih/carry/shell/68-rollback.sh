# Back to an earlier generation, or to none.

verb_rollback() {
    find_prefix "$PREFIX"
    open_prefix "$PREFIX"
    lock_prefix
    now=$(current)
    goal=${ARGUMENT:-$(before "${now:-none}")}
    case $goal in
    '') die $USAGE_CODE "none is left that was current before generation ${now:-N}" "status shows which there are: rollback N" ;;
    *[!0-9]*) die $USAGE_CODE "$goal is no generation" "status shows which there are" ;;
    esac
    [ -d "$PREFIX/generations/$goal" ] || die $USAGE_CODE "there is no generation $goal" "status shows which there are"
    if [ "$goal" = "$now" ]; then
        say "nothing to do: generation $goal is the current one"
        return
    fi
    damage=$(wrong "$goal")
    [ -z "$damage" ] || die $SEAL "generation $goal is not what was installed: generations/$goal/$damage" \
        "status --check shows which are whole; sh FILE upgrade with the .pih file of that version installs it anew"
    switch "$goal"
    facts "$goal"
    say "generation $goal is the current one now: $its_name $its_version $its_image"
    [ -z "$(users "$now")" ] || say "generation $now still runs: restart it"
}

verb_uninstall() {
    find_prefix "$PREFIX"
    open_prefix "$PREFIX"
    lock_prefix
    for number in $(generations); do
        [ -z "$(users "$number")" ] || die $HOST "generation $number runs: $(users "$number" | tr '\n' ' ')" "stop it first"
    done
    remove_units
    # the link goes first: there is never one that leads nowhere
    rm -f "$PREFIX/current" "$PREFIX/pih"
    for number in $(generations); do
        remove "$number"
    done
    rmdir "$PREFIX/generations" 2>/dev/null || say "left     $PREFIX/generations, which holds files that are not of pih"
    rm -rf "$PREFIX/.pih"
    rmdir "$PREFIX" 2>/dev/null || say "left     $PREFIX, which holds files that are not of pih"
    say "uninstalled"
}
