"""The maximum resident memory of one command, in KiB, for each of several runs.

The kernel's value for a process includes the process that forked it. So this one is small: `python3 -I -S`."""

import os
import sys


def peak(argv):
    pid = os.fork()
    if pid == 0:
        null = os.open("/dev/null", os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        os.execvp(argv[0], argv)
    _, status, used = os.wait4(pid, 0)
    if status != 0:
        sys.exit(f"{argv} ended with {os.waitstatus_to_exitcode(status)}")
    return used.ru_maxrss


print(max(peak(sys.argv[2:]) for _ in range(int(sys.argv[1]))))
