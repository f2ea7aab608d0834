set +f -eu
# What has a host's tools count, name, read or write otherwise than they do by themselves. POSIXLY_CORRECT stays: bash would
# leave the mode that it is in.
unset IFS CDPATH ENV BASH_ENV GLOBIGNORE
unset BLOCK_SIZE BLOCKSIZE DF_BLOCK_SIZE DU_BLOCK_SIZE LS_BLOCK_SIZE TIME_STYLE QUOTING_STYLE _POSIX2_VERSION
unset TAR_OPTIONS TAR_READER_OPTIONS GZIP PIGZ GREP_OPTIONS AWKPATH AWKLIBPATH MAWK_LONG_OPTIONS MAWKBINMODE
LC_ALL=C PATH=${PATH:-/usr/sbin:/usr/bin:/sbin:/bin}
export LC_ALL PATH
umask 022
