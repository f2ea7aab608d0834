"""Files that are made to hurt who reads them. As a program: read them all with one reader, and say what each cost.

    python -m tests.support.hostile profile | manifest | lock | catalog FOLDER

Prints a line of JSON for each: the case, how it ended, the words, seconds of CPU, bytes of memory at the worst moment.
"""

import json
import re
import resource
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MANY = 50_000
TOML = {
    "many keys": b"".join(b"k%d=1\n" % number for number in range(MANY)),
    "many dotted keys": b"".join(b"a.b.k%d=1\n" % number for number in range(MANY)),
    "many tables": b"".join(b"[t%d]\n" % number for number in range(MANY)),
    "many tables of an array": b"[[a]]\n" * MANY,
    "arrays of arrays of tables": b"[[a]]\n[[a.b]]\n[[a.b.c]]\n" * (MANY // 3),
    "brackets": b"a=" + b"[" * 500_000,
    "closed brackets": b"a=" + b"[" * 250_000 + b"]" * 250_000,
    "inline tables in each other": b"a=" + b"{b=" * 200_000,
    "inline tables beside each other": b"a=[" + b"{b={c=[{},{}]}}," * 60_000 + b"]",
    "inline tables of many keys": b"a={" + b",".join(b"k%d={}" % number for number in range(MANY)) + b"}",
    "empty strings": b"a=[" + b'"",' * 300_000 + b"]",
    "a key of many parts": b"a" + b".a" * 400_000 + b"=1",
    "a table of many parts": b"[" + b"a." * 400_000 + b"a]",
    "a table of 200 parts, many times": b"".join(b"[%s%d]\n" % (b"a." * 199, number) for number in range(2000)),
    "a long bare key": b"a" * 900_000 + b"=1",
    "a long quoted key": b'"' + b"\\u0041" * 150_000 + b'"=1',
    "a long number": b"a=" + b"9" * 900_000,
    "a long fraction": b"a=0." + b"9" * 900_000,
    "a number past all": b"a=1e999999999999",
    "a long hexadecimal number": b"a=0x" + b"f" * 900_000,
    "a long string": b'[model]\nplugin="' + b"a-" * 400_000 + b'"',
    "a string that never ends": b'a="""' + b"\\\n" * 400_000,
    "a date that is none": b"a=9999-99-99T99:99:99",
    "half a character": b'a="\\ud800"',
    "half a character in bytes": b'a="\xed\xa0\x80"',
    "NUL": b'a="\0"\n\0=1',
    "NUL in a value": b'[deployment]\nname="a\\u0000b"',
    "a byte order mark": b"\xef\xbb\xbfa=1",
    "UTF-16": "a=1".encode("utf-16"),
    "carriage returns": b"a=1\r" * 100_000,
    "a comment": b"#" + b"a" * 1_000_000,
    "blank lines": b"\n" * 1_000_000,
    "nothing": b"",
    "zeros": bytes(1000),
    "100 MB": b"a=1 # " + b"b" * 100_000_000,
}
JSON = {
    "brackets": b"[" * 1_000_000,
    "closed brackets": b"[" * 500_000 + b"]" * 500_000,
    "braces": b'{"a":' * 200_000,
    "many keys": b'{"schema":1,' + b",".join(b'"k%d":1' % number for number in range(200_000)) + b"}",
    "one key many times": b'{"schema":1,' + b",".join([b'"k":{}'] * 500_000) + b"}",
    "many tables": b'{"schema":1,"plugins":[' + b",".join([b"{}"] * 500_000) + b"]}",
    "as many tables as there is room for": b'{"schema":1,"plugins":[' + b",".join([b"{}"] * 5_590_000) + b"]}",
    "many numbers": b'{"schema":1,"plugins":[' + b",".join([b"0"] * 2_000_000) + b"]}",
    "a long key": b'{"schema":1,"' + b"k" * 5_000_000 + b'":1}',
    "a long number": b'{"schema":' + b"9" * 5_000_000 + b"}",
    "a long fraction": b'{"schema":0.' + b"9" * 5_000_000 + b"}",
    "no number": b'{"schema":NaN}',
    "a number past all": b'{"schema":1e999999}',
    "half a character": b'{"schema":1,"\\ud800":"\\udfff"}',
    "half a character in bytes": b'{"schema":1,"a":"\xed\xa0\x80"}',
    "NUL": b'{"schema":1,"a\0":1}',
    "NUL in a value": b'{"schema":1,"name":"a\\u0000b","plugins":[]}',
    "a byte order mark": b'\xef\xbb\xbf{"schema":1}',
    "UTF-16": '{"schema":1}'.encode("utf-16"),
    "nothing": b"",
    "zeros": bytes(1000),
    "blanks": b" " * 5_000_000,
    "100 MB": b'{"schema":1,"a":"' + b"b" * 100_000_000 + b'"}',
}
CASES = {"profile": TOML, "manifest": TOML, "lock": JSON, "catalog": JSON}
ADDRESS_SPACE, CPU_SECONDS = 2 << 30, 300


def reader(name, folder):
    """(the file that it reads, what reads it)."""
    sys.path[:0] = [str(ROOT / "resolver"), str(ROOT / "runtime")]
    from pih import catalog, lock, profile
    from pih.trust import index

    (folder / "plugins/backend/x").mkdir(parents=True, exist_ok=True)
    return {
        "profile": (folder / "x.toml", lambda: profile.load(folder / "x.toml")),
        "manifest": (folder / "plugins/backend/x/plugin.toml", lambda: catalog.load(folder)),
        "lock": (folder / "x.lock.json", lambda: lock.read(folder / "x.lock.json")),
        "catalog": (folder / "catalog.json", lambda: index.read(folder)),
    }[name]


def memory(name):
    return 1024 * int(re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])


def measured(read, refusal):
    """What one reading ended in and cost. Writing 5 to clear_refs sets the high-water mark to what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")
    before, began, words = memory("VmRSS"), time.process_time(), ""
    try:
        read()
        ended = "read"
    except refusal as problem:
        ended, words = "refused", str(problem)
    except BaseException as problem:  # noqa: BLE001 - each is what the test looks for
        ended = type(problem).__name__
    return {
        "ended": ended,
        "words": words,
        "seconds": time.process_time() - began,
        "memory": memory("VmHWM") - before,
    }


def main():
    name, folder = sys.argv[1], Path(sys.argv[2])
    path, read = reader(name, folder)
    from pih_runtime.errors import PihError

    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    for case, content in CASES[name].items():
        path.write_bytes(content)
        print(json.dumps({"case": case, **measured(read, PihError)}), flush=True)


if __name__ == "__main__":
    main()
