# SPDX-License-Identifier: Apache-2.0

"""virtco-cast in two racks behind oversubscribed uplinks (Orchestra §7.2).

    python -m benchmarks.cast [--per-rack 10] [--oversubscription 4]
        [--rate 10Mbit/s] [--size 10MB] [--repeats 3] [--json]

Each VM is a network namespace with a link of ``--rate``; the racks' uplinks
carry ``per_rack · rate / oversubscription``. The time runs from when the last
receiver is ready until the tracker knows that all have all, as virtco-cast
prints it. The bound is the larger of the time in which one copy passes a VM's
link and that in which one passes an uplink, without headers. ``plain`` is
BitTorrent's one swarm of random neighbours, ``unaware`` what virtco-cast does
without knowing racks. Needs root.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from virtco import units
from virtco_lab.emulation import namespaces
from virtco_lab.emulation import racks as racks_module

_LIMIT_S = 300.0
_MODES = ('plain', 'unaware', 'topology', 'inferred')


def cast(racks, path, mode, directory):
    """Seconds to the last byte, and copies that crossed uplinks."""
    source, *receivers = racks.bed.hosts
    command = [sys.executable, '-m', 'virtco_tenant.cast.command']
    history = directory / 'history.json'
    clusters = directory / 'clusters.json'
    clusters.write_text(json.dumps(racks.bed.racks))
    options = {'plain': ['--plain', '--history', str(history)],
               'unaware': [], 'inferred': ['--history', str(history)],
               'topology': ['--clusters', str(clusters)]}[mode]
    log = directory / 'send.log'
    before = racks.switches_bytes()
    with contextlib.ExitStack() as stack:
        def start(vm, *words, output):
            host = racks.hypervisors[vm]
            process = subprocess.Popen(
                [*namespaces.within(host.namespace), *command, *words,
                 '--name', vm, '--address', host.address],
                stdout=output, stderr=subprocess.STDOUT)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        sender = start(source, 'send', str(path), '--receivers',
                       str(len(receivers)), *options,
                       output=stack.enter_context(log.open('w')))
        end_s = time.monotonic() + _LIMIT_S
        while not (url := re.search(r'http://\S+', log.read_text())):
            _check(end_s, sender, log)
        for vm in receivers:
            (directory / vm).mkdir()
            start(vm, 'receive', url[0], str(directory / vm),
                  output=subprocess.DEVNULL)
        while not (done := re.search(r'after ([\d.]+) s', log.read_text())):
            _check(end_s, sender, log)
        sender.wait(30)
    for vm in receivers:
        got = directory / vm / path.name
        if got.read_bytes() != path.read_bytes():
            raise AssertionError(f'{vm} has other bytes')
        shutil.rmtree(directory / vm)
    copies = (racks.switches_bytes() - before) / path.stat().st_size / 2
    return float(done[1]), copies


def _check(end_s, sender, log):
    if time.monotonic() > end_s or sender.poll() is not None:
        raise TimeoutError(log.read_text()[-2000:])
    time.sleep(0.05)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--racks', type=int, default=2)
    parser.add_argument('--per-rack', type=int, default=10)
    parser.add_argument('--oversubscription', type=float, default=4)
    parser.add_argument('--rate', type=units.parse_rate_bps, default=10e6)
    parser.add_argument('--size', type=units.parse_size_bytes, default=10e6)
    parser.add_argument('--repeats', type=int, default=3)
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args(argv)
    if os.geteuid():
        parser.error('needs root for network namespaces')
    bound_s = args.size * 8 / min(
        args.rate, args.per_rack * args.rate / args.oversubscription)
    found = {'racks': args.racks, 'per_rack': args.per_rack,
             'bound_s': bound_s}
    with tempfile.TemporaryDirectory() as name, racks_module.built(
            [args.per_rack] * args.racks, args.rate,
            args.oversubscription) as racks:
        path = pathlib.Path(name) / 'file'
        path.write_bytes(os.urandom(int(args.size)))
        for mode in _MODES:
            times = []
            for _ in range(args.repeats):
                times.append(cast(racks, path, mode, pathlib.Path(name)))
            found[mode] = {
                'median_s': statistics.median(one for one, _ in times),
                'min_s': min(times)[0], 'max_s': max(times)[0],
                'uplink_copies': statistics.median(
                    copies for _, copies in times)}
            if not args.json:
                print(f'{mode:9} {found[mode]["median_s"]:6.1f} s '
                      f'({found[mode]["min_s"]:.1f} … '
                      f'{found[mode]["max_s"]:.1f}), bound {bound_s:.1f} s, '
                      f'{found[mode]["uplink_copies"]:.1f} copies over the '
                      'uplinks', flush=True)
    if args.json:
        print(json.dumps(found))


if __name__ == '__main__':
    main()
