"""Shared libraries that a test puts in front of the C library of processes, made by the pinned compiler."""

import os
import subprocess
import tempfile
import zipfile
from pathlib import Path

from tests.support.artifacts import artifact

# Ends every process that runs a build step: none may be reached by what the user's environment names.
ENDS_STEPS = """
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

__attribute__((constructor)) static void begin(void) {
    static char line[1 << 16];
    int file = open("/proc/self/cmdline", O_RDONLY);
    long size = read(file, line, sizeof line - 1);
    close(file);
    for (long at = 0; at < size; at++)
        if (strstr(line + at, "pih_steps") == line + at) _exit(66);
}
"""

# Tells every process that it is fifteen years later.
LATER = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { LATER = 15 * 365 * 86400 };

int clock_gettime(clockid_t which, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, which, now);
    if (!failed && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) now->tv_sec += LATER;
    return failed;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *out, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"""


def library(source, folder):
    """The library of a C source, in `folder`."""
    made = folder / "preloaded.so"
    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(artifact("wheel", "ziglang")) as wheel:
        wheel.extractall(scratch)
        compiler = Path(scratch, "ziglang/zig")
        compiler.chmod(0o755)
        Path(scratch, "preloaded.c").write_text(source)
        command = [compiler, "cc", "-shared", "-fPIC", "-O1", "-target", "x86_64-linux-gnu.2.17", "-o", made]
        caches = {"ZIG_GLOBAL_CACHE_DIR": scratch, "ZIG_LOCAL_CACHE_DIR": scratch}
        subprocess.run([*command, "preloaded.c"], cwd=scratch, env={**os.environ, **caches}, check=True)
    return made
