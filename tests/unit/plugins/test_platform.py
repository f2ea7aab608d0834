"""platform/linux: limits from cgroup files of both versions, ISA levels from flags, refusals with numbers."""

import math
import os

import pytest
from pih_platform_linux import cgroup, cpu, start
from pih_platform_linux.host import LinuxHost, check

from pih_runtime.contracts import Context
from pih_runtime.errors import WorkerError

HASWELL = ["fpu", "cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"]
HASWELL += ["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"]


def tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_version_2_takes_the_tightest_limit_on_the_way_up(tmp_path):
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/pod/app\n",
            "sys/fs/cgroup/pod/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/pod/memory.max": "max\n",
            "sys/fs/cgroup/pod/app/cpu.max": "max 100000\n",
            "sys/fs/cgroup/pod/app/memory.max": "1000000\n",
        },
    )
    assert cgroup.read(root) == cgroup.Limits(cpus=1.5, memory_bytes=1_000_000)


def test_in_a_container_the_mount_itself_holds_the_limit(tmp_path):
    root = tree(
        tmp_path,
        {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "5000", "sys/fs/cgroup/cpu.max": "20000 10000"},
    )
    assert cgroup.read(root) == cgroup.Limits(cpus=2.0, memory_bytes=5000)


def test_version_1_and_its_way_to_say_unlimited(tmp_path):
    files = {
        "proc/self/cgroup": "4:memory:/job\n2:cpu,cpuacct:/job\n1:name=systemd:/\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "4096\n",
        "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "50000\n",
        "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n",
    }
    assert cgroup.read(tree(tmp_path, files)) == cgroup.Limits(cpus=0.5, memory_bytes=4096)
    tree(
        tmp_path,
        {
            "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "9223372036854771712",
        },
    )
    assert cgroup.read(tmp_path) == cgroup.Limits(cpus=math.inf, memory_bytes=cgroup.UNLIMITED)


def test_no_cgroup_is_no_limit(tmp_path):
    assert cgroup.read(tmp_path) == cgroup.Limits(cpus=math.inf, memory_bytes=cgroup.UNLIMITED)


def test_flags_are_those_that_every_cpu_has(tmp_path):
    root = tree(tmp_path, {"proc/cpuinfo": "flags\t\t: a b c\nmodel : x\nflags\t\t: b c d\n"})
    assert cpu.flags(root) == {"b", "c"}


def test_levels_need_all_their_flags():
    assert cpu.levels(frozenset(HASWELL)) == {"x86-64-v3"}
    v4 = [*HASWELL, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]
    assert cpu.levels(frozenset(v4)) == {"x86-64-v3", "x86-64-v4"}
    assert "x86-64-v4-bf16-vnni" in cpu.levels(frozenset([*v4, "avx512_bf16", "avx512_vnni"]))
    assert cpu.levels(frozenset(HASWELL) - {"fma"}) == frozenset()


def test_cpus_are_bounded_by_affinity_and_quota():
    usable = len(os.sched_getaffinity(0))
    assert cpu.count(math.inf) == usable
    assert cpu.count(0.3) == 1
    assert cpu.count(1.0) == 1


def test_a_cpu_without_the_isa_is_refused_naming_the_flags_it_lacks():
    flags = frozenset(HASWELL) - {"fma", "avx2"}
    with pytest.raises(WorkerError, match="x86-64-v3; it lacks: avx2 fma"):
        check(LinuxHost(1, 1 << 40, cpu.levels(flags)), flags, "x86-64-v3", {"total": 1})
    with pytest.raises(WorkerError, match="unknown to this worker"):
        check(LinuxHost(1, 1 << 40, frozenset()), flags, "riscv", {"total": 1})


def test_less_memory_than_the_budget_is_refused_with_the_numbers():
    host = LinuxHost(1, 500, frozenset({"x86-64-v3"}))
    budget = {"weights": 400, "kv": 150, "activations": 30, "spill": 0, "host": 20, "total": 600, "device": 0}
    parts = r"weights 400 \+ kv 150 \+ activations 30 \+ spill 0 \+ host 20"
    with pytest.raises(WorkerError, match=rf"needs 600 bytes \({parts}\), this process may use 500") as caught:
        check(host, frozenset(), "x86-64-v3", budget)
    assert caught.value.exit_code == 9
    check(LinuxHost(1, 600, frozenset({"x86-64-v3"})), frozenset(), "x86-64-v3", budget)


def test_this_host_is_measured(tmp_path):
    lines = []
    lock = {"target": {"threads": 1, "isa": "x86-64-v3"}, "budget": {"total": 1}}
    host = start(Context(tmp_path, {}, lock, "", None, lines.append, lambda: False, print))
    assert host.threads == 1
    assert host.memory_bytes > 1 << 20
    assert "threads=1" in lines[0]
