# A systemd unit: of the system where root installs, else of the user. systemd's own options are the sandbox there.

unit_start() {
    echo "ExecStart=/bin/sh $PREFIX/pih start --prefix $PREFIX --no-sandbox"
}

unit_text() {
    cat <<UNIT_END
[Unit]
Description=pih deployment $NAME
Documentation=file://$PREFIX/pih
After=network.target

[Service]
$(unit_start)
Restart=on-failure
TimeoutStopSec=15
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictNamespaces=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
UNIT_END
    [ -z "$VARIABLES" ] || echo "PassEnvironment=$VARIABLES"
    if [ "$(id -u)" -ne 0 ]; then
        printf '\n[Install]\nWantedBy=default.target\n'
        return
    fi
    cat <<UNIT_END
DynamicUser=yes
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome=read-only
ProtectProc=invisible
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
PrivateTmp=yes
UNIT_END
    if [ -z "$DEVICES$NODES" ]; then
        echo PrivateDevices=yes
    else
        echo DevicePolicy=closed
        devices=$(granted $DEVICES) || exit
        for device in $devices $(present $NODES); do echo "DeviceAllow=$device rw"; done
    fi
    printf '\n[Install]\nWantedBy=multi-user.target\n'
}

# is_unit FILE: whether it is one of this prefix
is_unit() {
    [ -f "$1" ] && [ ! -L "$1" ] && grep -qxF "$(unit_start)" "$1"
}

# open_unit: all that can be wrong with it, before anything is installed; its folder is made if need be
open_unit() {
    [ -n "$UNIT" ] || return 0
    if [ -n "$UNIT_DIR" ]; then
        units=$UNIT_DIR
    elif [ "$(id -u)" -eq 0 ]; then
        units=/etc/systemd/system
    else
        [ -n "${XDG_CONFIG_HOME:-${HOME:-}}" ] || die $USAGE_CODE "HOME is not set: the user has no folder of units" "--unit-dir DIR"
        units=${XDG_CONFIG_HOME:-$HOME/.config}/systemd/user
    fi
    above=$(nearest "$units")
    mkdir -p "$units" 2>/dev/null || die $HOST "the folder of units $units cannot be made" "--unit-dir DIR"
    UNITS_ABOVE=$above
    UNIT_DIR=$(cd "$units" && pwd -P)
    [ -w "$UNIT_DIR" ] || die $HOST "cannot write $UNIT_DIR" "--unit-dir DIR, or be root"
    UNIT=$UNIT_DIR/pih-$NAME.service
    if [ -e "$UNIT" ] || [ -L "$UNIT" ]; then
        is_unit "$UNIT" || die $USAGE_CODE "$UNIT is there already, and not of $PREFIX" "remove it, or take another --unit-dir"
    fi
    UNIT_TEXT=$(unit_text) || exit
}

# close_unit: what open_unit made goes again where no unit was written
close_unit() {
    [ -z "$UNITS_ABOVE" ] || unmake "$UNIT_DIR" "$UNITS_ABOVE"
}

# noted FILE: writes it down, for uninstall
noted() {
    ! grep -qxF "$1" "$PREFIX/.pih/units" 2>/dev/null || return 0
    { cat "$PREFIX/.pih/units" 2>/dev/null || :; echo "$1"; } >"$PREFIX/.pih/units.new" &&
        mv -f "$PREFIX/.pih/units.new" "$PREFIX/.pih/units"
}

write_unit() {
    [ -n "$UNIT" ] || return 0
    noted "$UNIT" && printf '%s\n' "$UNIT_TEXT" 2>/dev/null >"$UNIT.new" && mv -f "$UNIT.new" "$UNIT" || {
        rm -f "$UNIT.new"
        die $HOST "$NAME is installed in $PREFIX, but its unit $UNIT could not be written" "make room, then give the same command again"
    }
    systemctl="systemctl$([ "$(id -u)" -eq 0 ] || echo ' --user')"
    say "unit     $UNIT"
    say "enable   $systemctl daemon-reload && $systemctl enable --now pih-$NAME"
}

# remove_units: those that write_unit wrote, and nobody changed into another's
remove_units() {
    [ -r "$PREFIX/.pih/units" ] || return 0
    while IFS= read -r file; do
        is_unit "$file" || continue
        rm -f "$file"
        say "removed  $file"
    done <"$PREFIX/.pih/units"
}
