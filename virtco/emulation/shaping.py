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

"""The physical rate of an uplink, enforced inside the core.

Independent of what the edge modules do on their side of the cable: towards a
host by an HTB on the core's port, from a host by redirecting the port's
ingress to an IFB device with the same HTB.
"""

import subprocess

from virtco.emulation import namespaces
from virtco import units

_MIN_QUEUE_BYTES = 128 * 1024
_QUEUE_S = 0.02
# Two milliseconds of credit outlast a late timer on a busy machine.
_BURST_S = 0.002
_MIN_BURST_BYTES = 16 * 1024


def ifb_name(port: str) -> str:
    return f'ifb-{port}'


def limit_commands(port: str, rate_bps: float,
                   verb: str = 'add') -> list[str]:
    """Lines for ``tc -batch`` that give a port its rate both ways.

    :param verb: ``add`` at first, ``change`` to alter the rate under traffic.
    """
    rate = f'{round(rate_bps)}bit'
    bytes_per_s = units.bps_to_bytes_per_s(rate_bps)
    burst = max(_MIN_BURST_BYTES, round(bytes_per_s * _BURST_S))
    queue = max(_MIN_QUEUE_BYTES, round(bytes_per_s * _QUEUE_S))
    lines = []
    for dev in (port, ifb_name(port)):
        if verb == 'add':
            lines.append(f'qdisc add dev {dev} root handle 1: htb default 1')
        lines += [
            f'class {verb} dev {dev} parent 1: classid 1:1 htb rate {rate} '
            f'ceil {rate} burst {burst} cburst {burst} quantum 65536',
            f'qdisc {verb} dev {dev} parent 1:1 handle 10: '
            f'bfifo limit {queue}']
    if verb == 'add':
        lines += [
            f'qdisc add dev {port} handle ffff: ingress',
            f'filter add dev {port} parent ffff: protocol all u32 '
            f'match u32 0 0 action mirred egress redirect '
            f'dev {ifb_name(port)}']
    return lines


def run_batch(namespace: str, lines: list[str]) -> None:
    """Run tc command lines inside a namespace.

    :raises subprocess.CalledProcessError: with tc's words in ``stderr``.
    """
    subprocess.run(
        ['nsenter', f'--net={namespaces.path(namespace)}', 'tc', '-batch',
         '-'], input='\n'.join(lines) + '\n', text=True, check=True,
        capture_output=True)
