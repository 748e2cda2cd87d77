# SPDX-License-Identifier: Apache-2.0

"""How slow this machine is: budgets of CPU seconds are those of another."""

import os
import subprocess
import sys

#: CPU seconds that :data:`WORK` takes with every core of the reference busy:
#: an idle virtual machine with two cores of an AMD EPYC.
REFERENCE_CPU_S = 0.6
WORK = """
import json, time
begin_s = time.process_time()
rows = [{'name': f'row {i}', 'sizes': [i * j % 97 for j in range(9)]}
        for i in range(3000)]
for _ in range(20):
    text = json.dumps(rows, indent=1)
    rows = sorted(json.loads(text), key=lambda row: sum(row['sizes']))
print(time.process_time() - begin_s)
"""


def slowness() -> float:
    """CPU seconds that work takes here over what it takes on the reference.

    Every core works meanwhile, as it does under the tests: two virtual cores
    may share one real one.
    """
    running = [subprocess.Popen([sys.executable, '-c', WORK], text=True,
                                stdout=subprocess.PIPE)
               for _ in range(os.cpu_count() or 2)]
    took_s = [float(process.communicate()[0]) for process in running]
    return sum(took_s) / len(took_s) / REFERENCE_CPU_S
