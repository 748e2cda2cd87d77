# SPDX-License-Identifier: Apache-2.0

"""What /proc says of a process."""

import pathlib


def status(pid):
    """/proc/PID/status as a dictionary."""
    text = pathlib.Path(f'/proc/{pid}/status').read_text()
    return {key: value.strip() for key, _, value in (
        line.partition(':') for line in text.splitlines())}


def children(pid):
    """Pids of the child processes."""
    found = []
    for task in pathlib.Path(f'/proc/{pid}/task').iterdir():
        found += [int(text) for text
                  in (task / 'children').read_text().split()]
    return found


def cpu_s(pid):
    """Processor time of all threads of a process, to the nanosecond."""
    return sum(int(path.read_text().split()[0]) for path in
               pathlib.Path(f'/proc/{pid}/task').glob('*/schedstat')) / 1e9
