set +f
unset IFS CDPATH ENV
LC_ALL=C PATH=${PATH:-/usr/sbin:/usr/bin:/sbin:/bin}
export LC_ALL PATH
umask 022

