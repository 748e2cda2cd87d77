# SPDX-License-Identifier: Apache-2.0

"""The physical rate of an uplink, enforced inside the core.

Independent of what the edge modules do on their side of the cable: towards a
host by an HTB on the core's port, from a host by redirecting the port's
ingress to an IFB device with the same HTB.

At a fiftieth of a data centre's rate everything waits fifty times as long, and
acknowledgements that wait behind the data of the other direction slow it down.
So the core lets small packets pass first, within the link's rate.
"""

from collections.abc import Iterable
import subprocess

from virtco import units
from virtco_lab.emulation import namespaces

#: Queue of each direction: room for the windows of all flows of a host.
QUEUE_BYTES = 4 * 1024 * 1024
_ACK_QUEUE_BYTES = 128 * 1024
_ACK_SHARE = 0.05
# IP packets below 128 bytes: acknowledgements, SYN and FIN.
_SMALL = 'match u16 0x0000 0xff80 at 2'
# Two milliseconds of credit outlast a late timer on a busy machine.
_BURST_S = 0.002
_MIN_BURST_BYTES = 16 * 1024


def ifb_name(port: str) -> str:
    """Return the name of the IFB device that shapes a port's ingress."""
    return f'ifb-{port}'


def limit_commands(port: str, rate_bps: float, verb: str = 'add',
                   burst_bytes: int | None = None) -> list[str]:
    """Build lines for ``tc -batch`` that give a port its rate both ways.

    :param verb: ``add`` at first, ``change`` to alter the rate under traffic.
    :param burst_bytes: size of the token bucket; None for as little as a late
        timer needs.
    """
    lines = []
    for dev in (port, ifb_name(port)):
        classes = [_class(verb, dev, '1:', '1:9', rate_bps, rate_bps,
                          burst_bytes=burst_bytes),
                   _class(verb, dev, '1:9', '1:1',
                          rate_bps * (1 - _ACK_SHARE), rate_bps, prio=1,
                          burst_bytes=burst_bytes),
                   _class(verb, dev, '1:9', '1:2', rate_bps * _ACK_SHARE,
                          rate_bps, prio=0, burst_bytes=burst_bytes)]
        if verb == 'add':
            lines += [
                f'qdisc add dev {dev} root handle 1: htb default 1',
                *classes,
                f'qdisc add dev {dev} parent 1:1 handle 10: '
                f'bfifo limit {QUEUE_BYTES}',
                f'qdisc add dev {dev} parent 1:2 handle 20: '
                f'bfifo limit {_ACK_QUEUE_BYTES}',
                f'filter add dev {dev} parent 1: protocol ip u32 '
                f'{_SMALL} flowid 1:2']
        else:
            lines += classes
    if verb == 'add':
        lines += [
            f'qdisc add dev {port} handle ffff: ingress',
            f'filter add dev {port} parent ffff: protocol all u32 '
            f'match u32 0 0 action mirred egress redirect '
            f'dev {ifb_name(port)}']
    return lines


def bucket_command(dev: str, rate_bps: float | None,
                   queue_s: float | None = None, verb: str = 'add') -> str:
    """Build a line for ``tc -batch`` that gives a device one token bucket.

    :param queue_s: longest wait in its queue; None for a queue of 1 MiB.
    """
    assert rate_bps is not None
    sizes = f'burst {2 ** 14} limit {2 ** 20}'
    if queue_s is not None:
        burst_bytes = max(
            16_000, round(units.bps_to_bytes_per_s(rate_bps) * _BURST_S))
        sizes = f'burst {burst_bytes} latency {1000 * queue_s:g}ms'
    return (f'qdisc {verb} dev {dev} root tbf rate {rate_bps:.0f}bit '
            f'{sizes}')


def _class(verb: str, dev: str, parent: str, classid: str, rate_bps: float,
           ceil_bps: float, prio: int = 0,
           burst_bytes: int | None = None) -> str:
    burst = burst_bytes or max(
        _MIN_BURST_BYTES,
        round(units.bps_to_bytes_per_s(ceil_bps) * _BURST_S))
    return (f'class {verb} dev {dev} parent {parent} classid {classid} '
            f'htb rate {round(rate_bps)}bit ceil {round(ceil_bps)}bit '
            f'burst {burst} cburst {burst} quantum 65536 prio {prio}')


def run_batch(namespace: str, lines: list[str], program: str = 'tc') -> None:
    """Run command lines of ``tc`` or ``ip`` inside a namespace.

    :raises subprocess.CalledProcessError: with the program's words in
        ``stderr``.
    """
    subprocess.run(
        [*namespaces.within(namespace), program, '-batch', '-'],
        input='\n'.join(lines) + '\n', text=True, check=True,
        capture_output=True)


def limit_segments(namespace: str, devices: Iterable[str], segments: int
                   ) -> None:
    """Limit how many segments TCP puts into one super-packet of devices."""
    run_batch(namespace, [f'link set {device} gso_max_segs {segments}'
                          for device in devices], 'ip')
