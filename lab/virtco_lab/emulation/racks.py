# SPDX-License-Identifier: Apache-2.0

"""VMs in racks behind oversubscribed uplinks: namespaces, shaped links."""

from collections.abc import Mapping
from collections.abc import Sequence
import json
import subprocess
from typing import Any

from virtco_lab.emulation import namespaces
from virtco_lab.emulation import shaping


class Racks:
    """Namespaces with shaped links; a context manager.

    The bridges of all racks are in one namespace; the cable between each and
    the one in the middle is the uplink.

    :param sizes: VMs in each rack.
    :param slower_bps: rates of single VMs' links and, by the rack's name, of
        uplinks.
    """

    def __init__(self, sizes: Sequence[int], rate_bps: float,
                 oversubscription: float,
                 slower_bps: Mapping[str, float] | None = None):
        self.vms = {f'r{rack}v{vm}': f'rack{rack}'
                    for rack, size in enumerate(sizes) for vm in range(size)}
        self.address = {name: f'10.73.{place // 200}.{place % 200 + 1}'
                        for place, name in enumerate(self.vms)}
        uplinks_bps = {f'rack{rack}': size * rate_bps / oversubscription
                       for rack, size in enumerate(sizes)}
        self._rates_bps = {**dict.fromkeys(self.vms, rate_bps),
                           **uplinks_bps, **(slower_bps or {})}
        self._racks = len(sizes)
        self._run = namespaces.new_run()

    def __enter__(self) -> 'Racks':
        try:
            self._build()
        except BaseException:
            namespaces.release(self._run)
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        namespaces.release(self._run)

    def namespace(self, vm: str) -> str:
        """Return the name of the namespace of a VM, or of ``fabric``."""
        return namespaces.name(self._run, vm)

    def start(self, vm: str, *argv: str,
              **options: Any) -> 'subprocess.Popen[bytes]':
        return subprocess.Popen(
            ['nsenter', f'--net={namespaces.path(self.namespace(vm))}',
             *argv], **options)

    def uplink_bytes(self) -> int:
        """Read the bytes sent on the uplinks so far, both directions."""
        shown = json.loads(subprocess.check_output(
            ['ip', '-n', self.namespace('fabric'), '-s', '-j', 'link']))
        return sum(int(link['stats64']['tx']['bytes']) for link in shown
                   if link['ifname'].startswith(('up', 'down')))

    def _build(self) -> None:
        """Make the namespaces, racks and links, and shape each link."""
        fabric = self.namespace('fabric')
        for name in ('fabric', *self.vms):
            namespaces.create(self.namespace(name))
        shaping.run_batch(fabric, [
            'link set lo up', 'link add core up type bridge',
            *(line for rack in range(self._racks) for line in (
                f'link add rack{rack} up type bridge',
                f'link add up{rack} up master rack{rack} type veth peer name '
                f'down{rack}', f'link set down{rack} up master core'))], 'ip')
        shaping.run_batch(fabric, [
            _shaped(device, self._rates_bps[f'rack{rack}'])
            for rack in range(self._racks)
            for device in (f'up{rack}', f'down{rack}')])
        for vm, rack in self.vms.items():
            shaping.run_batch(fabric, [
                f'link add {vm} up master {rack} type veth peer name eth0 '
                f'netns {self.namespace(vm)}'], 'ip')
            shaping.run_batch(self.namespace(vm), [
                'link set lo up', 'link set eth0 up',
                f'addr add {self.address[vm]}/16 dev eth0'], 'ip')
            rate_bps = self._rates_bps[vm]
            shaping.run_batch(fabric, [_shaped(vm, rate_bps)])
            shaping.run_batch(self.namespace(vm), [_shaped('eth0', rate_bps)])


def _shaped(device: str, rate_bps: float) -> str:
    """Format a qdisc with queues of 50 ms and no longer bursts than 2 ms."""
    burst_bytes = max(16_000, round(rate_bps / 8 * 0.002))
    return (f'qdisc add dev {device} root tbf rate {rate_bps:.0f}bit '
            f'burst {burst_bytes} latency 50ms')
