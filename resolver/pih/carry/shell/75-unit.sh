# A systemd unit: of the system where root installs, else of the user. systemd's own options are the sandbox there.

unit_file() {
    if [ -n "$UNIT_DIR" ]; then
        echo "$UNIT_DIR/pih-$NAME.service"
    elif [ "$(id -u)" -eq 0 ]; then
        echo "/etc/systemd/system/pih-$NAME.service"
    else
        echo "${XDG_CONFIG_HOME:-$HOME/.config}/systemd/user/pih-$NAME.service"
    fi
}

unit_text() {
    cat <<UNIT_END
[Unit]
Description=pih deployment $NAME
Documentation=file://$PREFIX/pih
After=network.target

[Service]
ExecStart=/bin/sh $PREFIX/pih start --prefix $PREFIX --no-sandbox
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
        for device in $(granted $DEVICES) $(present $NODES); do echo "DeviceAllow=$device rw"; done
    fi
    printf '\n[Install]\nWantedBy=multi-user.target\n'
}

write_unit() {
    file=$(unit_file)
    mkdir -p "${file%/*}"
    unit_text >"$file.new"
    mv -f "$file.new" "$file"
    echo "$file" >"$PREFIX/.unit.new"
    mv -f "$PREFIX/.unit.new" "$PREFIX/.unit"
    say "unit     $file"
    say "enable   systemctl $([ "$(id -u)" -eq 0 ] || echo '--user ')daemon-reload && systemctl $([ "$(id -u)" -eq 0 ] || echo '--user ')enable --now pih-$NAME"
}

remove_unit() {
    [ -r "$PREFIX/.unit" ] || return 0
    file=$(cat "$PREFIX/.unit")
    # only what write_unit wrote
    case $file in */pih-*.service)
        rm -f "$file"
        say "removed  $file"
        ;;
    esac
    rm -f "$PREFIX/.unit"
}
