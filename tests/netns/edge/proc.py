# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

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
