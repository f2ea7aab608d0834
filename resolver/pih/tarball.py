"""Reading tar archives that come from outside: no header of one can fill the memory, and no number of them the time."""

from __future__ import annotations

import tarfile
from typing import NoReturn

MOST_ENTRIES = 100_000
_MOST_HEADER = 64 << 10  # bytes of a long name or of a PAX header: a path has 4096
_MOST_KEPT = 64 << 20  # bytes of names and PAX records of all entries, which stay in memory
_LONG = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)


class RefusedError(tarfile.TarError):
    """The archive is larger in its headers than any of ours; not a ReadError, after which other formats are tried."""


class Member(tarfile.TarInfo):
    """An entry, whose header is looked at before tarfile reads what the header announces."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Member:
        """As tarfile's; raises RefusedError for a header that is followed by more header than a path needs."""
        found = super().frombuf(buf, encoding, errors)
        if found.type == tarfile.GNUTYPE_SPARSE:
            raise RefusedError("a sparse file is no part of such an archive")
        if found.size < 0 or (found.type in _LONG and found.size > _MOST_HEADER):
            raise RefusedError(f"a header announces {found.size} bytes of a name, which is no name")
        return found

    def _proc_gnusparse_10(self, *_: object) -> NoReturn:
        """The map of a sparse file in the format that has it as long as it likes, among the file's bytes."""
        raise RefusedError("a sparse file is no part of such an archive")


class TarFile(tarfile.TarFile):
    """tarfile's, for reading; raises tarfile.TarError where the archive has more than its reader should take."""

    tarinfo = Member
    _seen = 0
    _kept = 0

    def next(self) -> tarfile.TarInfo | None:
        """The next entry, within bounds of number, names and sizes."""
        try:
            found = super().next()
        except (ValueError, OverflowError, RecursionError) as problem:
            raise RefusedError("a header of the archive is damaged") from problem
        if found is None:
            return None
        records = [*found.pax_headers.items(), *self.pax_headers.items(), (found.name, found.linkname)]
        self._kept += sum(len(key) + len(str(value)) for key, value in records)
        self._seen += 1
        if self._seen > MOST_ENTRIES or self._kept > _MOST_KEPT:
            raise RefusedError(f"it has more than {MOST_ENTRIES} entries, or names that are too long")
        if found.size < 0:
            raise RefusedError(f"{found.name!r} has a size below nothing")
        return found
