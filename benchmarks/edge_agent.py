# SPDX-License-Identifier: Apache-2.0

"""What the edge module itself takes of a processor on a full hypervisor.

``python -m benchmarks.edge_agent`` (root) gives one hypervisor 200 VM ports
and a policy of 200 coflows with 2,000 flows, and runs the real ``virtco-edge``
with its defaults and a report each second. It prints, in percent of a core,
what agent and helper take

* *idle*: nothing changes,
* *changing*: each second a policy comes in which every rate is another,

and the bytes of a report on the wire. With ``--how nft`` nftables classifies.
It takes two minutes.
"""

import argparse
import contextlib
import json
import pathlib
import shutil
import tempfile
import time
from typing import Any

from tests.netns.edge import bed as beds
from tests.netns.edge import controller as controllers
from tests.netns.edge import proc
from tests.netns.edge import process
from virtco.wire import edge_policy

PORTS, FLOWS = 200, 2000
LINK_BPS = 10e9
_USER = 'nobody'
_SETTLE_S = 10.0


def _uuid(number: int) -> str:
    return f'00000000-0000-4000-8000-{number:012}'


def _ip(number: int) -> str:
    return f'10.{number >> 16}.{number >> 8 & 255}.{number & 255}'


def policy(generation: int, factor: float) -> edge_policy.EdgePolicy:
    """A coflow per VM, which sends to VMs of another hypervisor.

    :param factor: of every rate.
    """
    rate_bps = LINK_BPS / 2 / PORTS * factor
    first = edge_policy.FIRST_MINOR
    classes = tuple(edge_policy.CoflowClass(
        f'C{number}', f'C{number}', first + 2 * number, rate_bps, LINK_BPS, 0,
        (edge_policy.Destination('h2', first + 2 * number + 1, 1.0, rate_bps,
                                 LINK_BPS),)) for number in range(PORTS))
    flows = tuple(edge_policy.FlowEntry(
        f'C{number % PORTS}', _uuid(number % PORTS), _ip(1 + number % PORTS),
        _ip(0x10000 + number), first + 2 * (number % PORTS) + 1, None)
        for number in range(FLOWS))
    return edge_policy.EdgePolicy(
        host='h1', generation=generation, ttl_s=60.0, egress_bps=LINK_BPS,
        ingress_bps=LINK_BPS,
        default_rate_bps=LINK_BPS / 50, classes=classes, flows=flows)


class Site:
    """One hypervisor with many ports, its agent and a controller."""

    def __init__(self, directory: pathlib.Path, how: str):
        self.bed = beds.Bed(1)
        netns = self.bed.ns('h1')
        beds.run('ip', '-batch', '-', netns=netns, text=''.join(
            f'tuntap add mode tap tap{number}\n'
            f'link set dev tap{number} master brv up\n'
            for number in range(PORTS)))
        self.controller = controllers.Controller(netns)
        self.edge = process.EdgeProcess(
            self.bed, 'h1', directory, LINK_BPS, {}, how,
            report_interval_s=1, user=_USER)
        self.edge.ports.write_text(json.dumps({'ports': [
            {'vm': _uuid(number), 'dev': f'tap{number}',
             'mac': f'02:00:00:00:{number >> 8:02x}:{number & 255:02x}',
             'ips': [_ip(1 + number)]} for number in range(PORTS)]}))

    def close(self) -> None:
        """End all of it."""
        self.edge.stop()
        self.controller.stop()
        self.bed.close()

    def start(self) -> None:
        """Have the agent enforce the first policy."""
        self.controller.set_policy(policy(1, 1.0).to_dict())
        self.edge.start(writes_ports=False)
        self.controller.wait_report(lambda report: (
            report['applied_generation'] and len(report['ports']) == PORTS
            and report['health'] == 'ok'), 60)
        time.sleep(_SETTLE_S)

    def _seen(self) -> tuple[float, float, int, int]:
        """Clock, processor time, bytes on the loopback device, reports."""
        pids = self.edge.process.pid, *proc.children(self.edge.process.pid)
        received_bytes = int(beds.run(
            'cat', '/sys/class/net/lo/statistics/rx_bytes',
            netns=self.bed.ns('h1')))
        return (time.monotonic(), sum(map(proc.cpu_s, pids)), received_bytes,
                len(self.controller.reports))

    def measure(self, for_s: float, is_changing: bool) -> dict[str, float]:
        """Return the share of a core, and the bytes of a report."""
        before = self._seen()
        generation = 1
        while time.monotonic() < before[0] + for_s:
            if is_changing:
                generation += 1
                self.controller.set_policy(policy(
                    generation, 1 + generation % 7 / 100).to_dict())
            time.sleep(1)
        took_s, cpu_s, received_bytes, reports = (
            now - then for now, then in zip(self._seen(), before,
                                            strict=True))
        return {'core': round(cpu_s / took_s, 4),
                'report_bytes': round(received_bytes / max(1, reports))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--how', choices=('bpf', 'nft'), default='bpf')
    parser.add_argument('--seconds', type=float, default=40)
    parser.add_argument('--json', action='store_true')
    arguments = parser.parse_args()
    found: dict[str, Any] = {'how': arguments.how}
    with tempfile.TemporaryDirectory() as directory, (
            contextlib.ExitStack()) as stack:
        path = pathlib.Path(directory)
        path.chmod(0o755)
        (path / 'state').mkdir()
        shutil.chown(path / 'state', _USER)
        site = Site(path, arguments.how)
        stack.callback(site.close)
        site.start()
        found['idle'] = site.measure(arguments.seconds, False)
        found['changing'] = site.measure(arguments.seconds, True)
    if arguments.json:
        print(json.dumps(found))
        return
    print(f'{PORTS} ports, {FLOWS:,} flows, classified by {arguments.how}')
    for what in ('idle', 'changing'):
        print(f'{what:9} {found[what]["core"]:6.1%} of a core')
    print(f'{found["idle"]["report_bytes"]:,} bytes on the wire per report, '
          'idle')


if __name__ == '__main__':
    main()
