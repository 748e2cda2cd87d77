# SPDX-License-Identifier: Apache-2.0

"""What coflows, the host and polite VMs keep while somebody attacks.

``python -m benchmarks.hostile [--json]`` (root; 16 minutes) builds two
hypervisors of network namespaces behind a bottleneck of 100 Mbit/s that counts
like Ethernet, without back-pressure. One runs the real ``virtco-edge``. A
coflow that is promised 60 Mbit/s, a polite TCP sender and a stream of
numbered datagrams in a coflow of its own run all the time; each row is one
attack beside them:

* ``host_ping_p99_ms``: round trip of the hypervisor's own ping.
* ``host_requests_ok``: share of its requests (connect, ask, 4 KiB) in 50 ms.
* ``coflow_share``: of what the coflow is promised, on the wire.
* ``unmanaged_share``: of what the coflows, their control packets and the
  host's own traffic leave, for the polite sender.
* ``lost_packets``: numbered datagrams that never arrived.
* ``seconds_unenforced``: time in which classes or classification were not as
  before the attack, looked at every 20 ms.
* ``coflow_share_undefended``: ``coflow_share`` without the ``defence``.

The last rows are attacks from other hypervisors on the link on which a coflow
arrives, by 1 to 16 VMs that send datagrams together at four times its speed,
with a real controller and four agents. There the coflow begins to send 2 s
after the flood, or with or before a flood that nobody has limited yet;
``seconds_unenforced`` is the time from the later one on until it has 95 % of
its promise; ``coflow_share`` is of what the policy promises (all but 2 % of
the link), ``unmanaged_share`` of what that leaves; a lost packet is a lost
ping.
"""

import argparse
import dataclasses
import itertools
import json

from benchmarks import hostile_attacks
from benchmarks import hostile_receivers
from benchmarks.hostile_row import Row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--json', action='store_true')
    parser.add_argument('--only', metavar='TEXT', default='',
                        help='attacks whose name contains this')
    shown = parser.parse_args()
    rows = []
    for row in itertools.chain(hostile_attacks.rows(shown.only),
                               hostile_receivers.rows(shown.only)):
        rows.append(row)
        if not shown.json:
            print(_line(row), flush=True)
    if shown.json:
        print(json.dumps([dataclasses.asdict(row) for row in rows], indent=1))


def _line(row: Row) -> str:
    bare = ('' if row.coflow_share_undefended is None else
            f'  without {row.defence} {row.coflow_share_undefended:.1%}')
    return (f'{row.attack:42} ping {row.host_ping_p99_ms:7.2f} ms  requests '
            f'{row.host_requests_ok:5.1%}  coflow {row.coflow_share:5.1%}  '
            f'unmanaged {row.unmanaged_share:5.1%}  lost {row.lost_packets:4}'
            f'  unenforced {row.seconds_unenforced:.2f} s{bare}')


if __name__ == '__main__':
    main()
