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


"""What advice for a group costs, and how good it is.

``python -m benchmarks.advice`` prints, for groups of several sizes with two
VMs per hypervisor and eight random partners of each rank, CPU seconds of one
estimate's tree and mapping, and predicted times: of trees over the binomial
tree's, of mappings over the one that gives each rank its own row.
"""

import argparse
import time

import numpy as np

from virtco.advise import mappings
from virtco.advise import trees

SIZES = (8, 16, 64, 128, 256, 500)
PER_HOST = 2
PARTNERS = 8


def problem(n: int, seed: int) -> tuple[np.ndarray, mappings.Paths]:
    rng = np.random.default_rng([seed, n])
    machines = np.arange(n) // PER_HOST
    same = machines[:, None] == machines[None, :]
    volumes = np.where(rng.random((n, n)) < PARTNERS / n,
                       rng.uniform(5e6, 1e7, (n, n)), 0.0)
    np.fill_diagonal(volumes, 0.0)
    return volumes, mappings.Paths(
        np.where(same, np.inf, rng.uniform(1e8, 1e9, (n, n))),
        np.where(same, 0.0, 1e-4), machines)


def row(n: int, seed: int) -> list[float]:
    volumes, paths = problem(n, seed)
    began_s = time.process_time()
    cost_s = trees.message_s(8e6, paths.rates_bps, paths.latency_s)
    tree = trees.advise(cost_s, 0, paths.machines)
    tree_cpu_s = time.process_time() - began_s
    began_s = time.process_time()
    found = mappings.advise(volumes, paths)
    mapping_cpu_s = time.process_time() - began_s
    by_name = {one.name: one.predicted_s for one in found}
    binomial_s = tree.tree('binomial').predicted_s
    return [tree_cpu_s, tree.tree('fnf').predicted_s / binomial_s,
            tree.tree('earliest').predicted_s / binomial_s,
            tree.order_s / binomial_s, tree.bound_s / binomial_s,
            mapping_cpu_s, by_name['greedy'] / by_name['rank'],
            found[0].predicted_s / by_name['rank'],
            found[0].bound_s / by_name['rank']]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--seeds', type=int, default=5)
    options = parser.parse_args()
    heads = ['tree CPU s', 'fnf', 'earliest', 'order', 'bound',
             'mapping CPU s', 'greedy', 'search', 'bound']
    print('   n  ' + '  '.join(heads))
    for n in SIZES:
        means = np.mean([row(n, seed) for seed in range(options.seeds)],
                        axis=0)
        print(f'{n:4}  ' + '  '.join(
            f'{mean:{len(head)}.2f}' for head, mean in zip(heads, means)))


if __name__ == '__main__':
    main()
