"""What a process has cost so far: a measure that a busy machine does not change."""

import os
from pathlib import Path

_TICKS_A_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Processor time of all threads of that process, seconds (`proc(5)`: utime and stime)."""
    after_name = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2]
    utime, stime = after_name.split()[11:13]
    return (int(utime) + int(stime)) / _TICKS_A_S
