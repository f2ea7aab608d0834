# Generations: what each is, which is the current one, which run.

generations() {
    for folder in "$PREFIX"/generations/*; do
        case ${folder##*/} in *[!0-9]* | '') ;; *) echo "${folder##*/}" ;; esac
    done | sort -n
}

current() {
    found=$(readlink "$PREFIX/current" 2>/dev/null) || return 0
    case $found in generations/*) echo "${found#generations/}" ;; esac
}

# own_script FILE: whether the script's third line is its digest
own_script() {
    [ -r "$1" ] && [ "$(sed '3s/=.*/=/' "$1" | digest)" = "$(sed -n '3{s/\\//g;s/^SELF=//p;q;}' "$1")" ]
}

# facts N: sets its_name, its_version, its_image and its_lock as the generation's own script says; empty if that was changed
facts() {
    its_name='' its_version='' its_image='' its_lock=''
    script=$PREFIX/generations/$1/pih
    own_script "$script" || return 0
    read -r its_name its_version its_image its_lock <<FACTS_END
$(sed -n -e 's/^NAME=//p' -e 's/^VERSION=//p' -e 's/^IMAGE=//p' -e 's/^LOCK=//p' -e '/^ARCH=/q' "$script" | tr -d "'" | tr '\n' ' ')
FACTS_END
}

# about N KEY: of what its script cannot say; nothing where that was changed
about() {
    ! own_about "$PREFIX/generations/$1" || sed -n "s/^$2 //p" "$PREFIX/generations/$1/about"
}

# own_about FOLDER: whether it and the two lists are as they were written; its last line is its digest
own_about() {
    [ -r "$1/about" ] && [ "self $(sed '$d' "$1/about" | digest)" = "$(sed -n '$p' "$1/about")" ]
}

# write_about FOLDER SIGNED DATE BEFORE: the last is the generation that it takes the place of, or nothing
write_about() {
    {
        printf 'signed %s\ninstalled %s\nbefore %s\n' "$2" "$3" "$4"
        for name in files shape; do echo "$name $(digest <"$1/$name")"; done
    } >"$1/about.new"
    echo "self $(digest <"$1/about.new")" >>"$1/about.new"
    chmod 644 "$1/about.new"
    mv -f "$1/about.new" "$1/about"
}

# before N: the generation that was the current one before N was put in its place, if it is still there. By their numbers it would
# be one that somebody went back from, after a rollback and another upgrade.
before() {
    was=$(about "$1" before)
    [ -z "$was" ] || [ ! -d "$PREFIX/generations/$was" ] || echo "$was"
}

# unlike FOLDER: a file beside the root that is not what was written
unlike() {
    for name in pih about files shape; do
        [ -s "$1/$name" ] && [ -n "$(find "$1/$name" -type f -perm 644)" ] || { echo "$name" && return; }
    done
    own_script "$1/pih" || { echo pih && return; }
    own_about "$1" || { echo about && return; }
    for name in files shape; do
        grep -qxF "$name $(digest <"$1/$name")" "$1/about" || { echo "$name" && return; }
    done
    [ -n "$(find "$1" "$1/root" -prune -type d -perm 755 | sed -n 2p)" ] || echo root
}

# wrong N: the first thing in a generation that is not what was installed, by its name there; nothing where all is. A name is for
# a terminal and for JSON alike: what is no plain letter of either is a `?`.
wrong() {
    place=$PREFIX/generations/$1
    found=$(unlike "$place" 2>/dev/null)
    [ -z "$found" ] || { echo "$found" && return; }
    {
        changed "$place/root" "$place/files"
        unlisted "$place/root" "$place/files"
        reshaped "$place/root" "$place/shape"
        capable "$place/root"
    } | sed -n '1{s|^|root/|;s|[^ -~]|?|g;s|["\\]|?|g;p;}'
}

# users N: the processes that run from a generation: their program is of its root, or it is their root. Of another user's
# process an ordinary user sees neither; there its first word counts.
users() {
    of=$PREFIX/generations/$1/root
    {
        ls -ln /proc/[0-9]*/exe 2>/dev/null | awk -v of=" -> $of/" '
            (at = index($0, of)) { count = split(substr($0, 1, at - 1), path, "/"); print path[count - 1] }'
        for process in /proc/[0-9]*; do
            # shellcheck disable=SC3013 # POSIX has it since 2024, and these shells had it before
            if [ "$process/root/" -ef "$of" ]; then
                echo "${process#/proc/}"
            elif [ ! -e "$process/exe" ]; then
                word=
                { read -r word <"$process/cmdline" || :; } 2>/dev/null
                case $word in "$of/"*) echo "${process#/proc/}" ;; esac
            fi
        done
    } | sort -un
}

# switch N: by one rename. A folder as its goal makes every mv do just that, also onto a link to a folder.
switch() {
    rm -rf "$PREFIX/.pih/switch"
    mkdir "$PREFIX/.pih/switch"
    ln -s "generations/$1" "$PREFIX/.pih/switch/current"
    mv -f "$PREFIX/.pih/switch/current" "$PREFIX/"
    rmdir "$PREFIX/.pih/switch"
    flush
}

# remove N
remove() {
    mv "$PREFIX/generations/$1" "$PREFIX/generations/$1.removed"
    rm -rf "$PREFIX/generations/$1.removed"
}

# prune KEEP: so many stay, the current one first, then that before it, then the newest; and any that runs
prune() {
    now=$(current)
    { echo "$now" && before "$now" && generations | sort -rn; } | awk '!seen[$0]++' | sed "1,$1d" | while read -r old; do
        if [ -n "$(users "$old")" ]; then
            say "keep     generation $old, which still runs"
        else
            remove "$old"
        fi
    done
}
