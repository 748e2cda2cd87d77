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

"""virtco-cast in two racks behind oversubscribed uplinks (Orchestra §7.2).

    python -m benchmarks.cast [--per-rack 10] [--oversubscription 4]
        [--rate 10Mbit/s] [--size 10MB] [--repeats 3] [--json]

Each VM is a network namespace with a link of ``--rate``; the racks' uplinks
carry ``per_rack · rate / oversubscription``. The bound is the larger of the
time in which one copy passes a VM's link and that in which one passes an
uplink. Needs root.
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

from virtco.lab.emulation import namespaces
from virtco import units

_LIMIT_S = 300.0
_MODES = ('unaware', 'topology', 'inferred')


class Racks:
    """Namespaces with shaped links; a context manager.

    The bridges of all racks are in one namespace; the cable between each and
    the one in the middle is the uplink.
    """

    def __init__(self, racks: int, per_rack: int, rate_bps: float,
                 oversubscription: float):
        self.vms = {f'r{rack}v{vm}': f'rack{rack}' for rack in range(racks)
                    for vm in range(per_rack)}
        self.address = {name: f'10.73.{place // 200}.{place % 200 + 1}'
                        for place, name in enumerate(self.vms)}
        self._racks = racks
        self._rate_bps = rate_bps
        self._uplink_bps = per_rack * rate_bps / oversubscription
        self._run = namespaces.new_run()

    def __enter__(self):
        try:
            self._build()
        except BaseException:
            namespaces.release(self._run)
            raise
        return self

    def __exit__(self, *exc_info):
        namespaces.release(self._run)

    def namespace(self, vm):
        return namespaces.name(self._run, vm)

    def start(self, vm, *argv, **options):
        return subprocess.Popen(
            ['nsenter', f'--net={namespaces.path(self.namespace(vm))}',
             *argv], **options)

    def uplink_bytes(self):
        """Sent on the uplinks so far, both directions."""
        shown = json.loads(_output('ip', '-n', self.namespace('fabric'),
                                   '-s', '-j', 'link'))
        return sum(link['stats64']['tx']['bytes'] for link in shown
                   if link['ifname'].startswith(('up', 'down')))

    def _build(self):
        fabric = self.namespace('fabric')
        for name in ('fabric', *self.vms):
            namespaces.create(self.namespace(name))
        _batch('ip', fabric, [
            'link set lo up', 'link add core type bridge',
            'link set core up', *(line for rack in range(self._racks)
                                  for line in (
                f'link add rack{rack} type bridge', f'link set rack{rack} up',
                f'link add up{rack} type veth peer name down{rack}',
                f'link set up{rack} master rack{rack}',
                f'link set down{rack} master core', f'link set up{rack} up',
                f'link set down{rack} up'))])
        _batch('tc', fabric, [
            _shaped(device, self._uplink_bps) for rack in range(self._racks)
            for device in (f'up{rack}', f'down{rack}')])
        for vm, rack in self.vms.items():
            _batch('ip', fabric, [
                f'link add {vm} type veth peer name eth0 netns '
                f'{self.namespace(vm)}',
                f'link set {vm} master {rack}', f'link set {vm} up'])
            _batch('ip', self.namespace(vm), [
                'link set lo up', 'link set eth0 up',
                f'addr add {self.address[vm]}/16 dev eth0'])
            _batch('tc', fabric, [_shaped(vm, self._rate_bps)])
            _batch('tc', self.namespace(vm),
                   [_shaped('eth0', self._rate_bps)])


def _shaped(device, rate_bps):
    """Queues of 50 ms, no longer bursts than 2 ms."""
    burst_bytes = max(16_000, round(rate_bps / 8 * 0.002))
    return (f'qdisc add dev {device} root tbf rate {rate_bps:.0f}bit '
            f'burst {burst_bytes} latency 50ms')


def _batch(program, namespace, lines):
    subprocess.run([program, '-n', namespace, '-batch', '-'],
                   input='\n'.join(lines) + '\n', text=True, check=True)


def _output(*argv):
    return subprocess.run(argv, capture_output=True, text=True,
                          check=True).stdout


def cast(racks, path, mode, directory):
    """Seconds to the last byte, and copies that crossed uplinks.

    The clock runs from the last receiver's start.
    """
    source, *receivers = racks.vms
    command = [sys.executable, '-m', 'virtco.cast.command']
    history = directory / 'history.json'
    known = {'topology': lambda vm: ['--cluster', racks.vms[vm]],
             'inferred': lambda vm: [], 'unaware': lambda vm: []}[mode]
    log = directory / 'send.log'
    before = racks.uplink_bytes()
    with contextlib.ExitStack() as stack:
        def start(vm, *words, output):
            process = racks.start(vm, *command, *words, *known(vm), '--name',
                                  vm, '--address', racks.address[vm],
                                  stdout=output, stderr=subprocess.STDOUT)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        sender = start(source, 'send', str(path), '--receivers',
                       str(len(receivers)), *(
                           [] if mode == 'topology' else
                           ['--history', str(history)]),
                       output=stack.enter_context(log.open('w')))
        end_s = time.monotonic() + _LIMIT_S
        while not (url := re.search(r'http://\S+', log.read_text())):
            _check(end_s, sender, log)
        for vm in receivers:
            (directory / vm).mkdir()
            start(vm, 'receive', url[0], str(directory / vm),
                  output=subprocess.DEVNULL)
        began_s = time.monotonic()
        while not (done := re.search(r'after ([\d.]+) s', log.read_text())):
            _check(end_s, sender, log)
        taken_s = time.monotonic() - began_s
        sender.wait(30)
    for vm in receivers:
        got = directory / vm / path.name
        if got.read_bytes() != path.read_bytes():
            raise AssertionError(f'{vm} has other bytes')
        shutil.rmtree(directory / vm)
    copies = (racks.uplink_bytes() - before) / path.stat().st_size / 2
    return min(taken_s, float(done[1]) + 1), copies


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
    with tempfile.TemporaryDirectory() as name, Racks(
            args.racks, args.per_rack, args.rate,
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
