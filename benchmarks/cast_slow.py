# SPDX-License-Identifier: Apache-2.0

"""virtco-cast where a rack, its uplink or one VM is slow.

    python -m benchmarks.cast_slow [--per-rack 5] [--rate 10Mbit/s]
        [--size 5MB] [--repeats 3] [--json]

Two racks without oversubscription, one of them slow. Each VM is a network
namespace. When the last VM has all is printed for those that are slow and
for all others; the bound is one copy over what is slow, and one over a VM's
link. ``Cornet`` is one swarm of random neighbours. Needs root.
"""

import argparse
import json
import os
import statistics

from virtco import units
from virtco_lab.emulation import casts
from virtco_lab.emulation import racks as racks_module

_SCHEMES = ('Cornet', 'virtco, topology')


def cases(per_rack, rate_bps):
    """Rates that are lower, and the VMs behind them."""
    rack = [f'r1v{place}' for place in range(per_rack)]
    return {
        'rack at 1/4': (dict.fromkeys(rack, rate_bps / 4), rack, 4),
        'uplink at 1/4': ({'rack1': rate_bps / 4}, rack, 4),
        'one VM at 1/10': ({rack[1]: rate_bps / 10}, rack[1:2], 10)}


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--per-rack', type=int, default=5)
    parser.add_argument('--rate', type=units.parse_rate_bps, default=10e6)
    parser.add_argument('--size', type=units.parse_size_bytes, default=5e6)
    parser.add_argument('--repeats', type=int, default=3)
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args(argv)
    if os.geteuid():
        parser.error('needs root for network namespaces')
    if args.per_rack < 2 or args.repeats < 1:
        parser.error('--per-rack: 2 or more, --repeats: 1 or more')
    bound_s = args.size * units.BITS_PER_BYTE / args.rate
    found = []
    for case, (slower_bps, slow, times) in cases(args.per_rack,
                                                 args.rate).items():
        with racks_module.built([args.per_rack] * 2, args.rate, 1,
                                slower_bps) as racks:
            for name in _SCHEMES:
                runs = [casts.run(racks, int(args.size), casts.SCHEMES[name],
                                  seed) for seed in range(args.repeats)]
                row = {'case': case, 'scheme': name,
                       'slow_bound_s': bound_s * times, 'bound_s': bound_s}
                for kind, is_slow in (('slow_s', True), ('others_s', False)):
                    row[kind] = statistics.median(
                        max(end_s for vm, end_s in run.ends_s.items()
                            if (vm in slow) == is_slow) for run in runs)
                found.append(row)
                if not args.json:
                    print(f'{case:15} {name:17} slow {row["slow_s"]:5.1f} s '
                          f'(bound {row["slow_bound_s"]:.1f}), others '
                          f'{row["others_s"]:5.1f} s (bound {bound_s:.1f})',
                          flush=True)
    if args.json:
        print(json.dumps(found))


if __name__ == '__main__':
    main()
