# SPDX-License-Identifier: Apache-2.0

"""Demo of the cloud: groups by the real client, traffic, measured CCTs."""

from collections.abc import Collection
import dataclasses
import json
import os
import subprocess
import time
from typing import Any

from rich import console
from rich import table

from virtco import exception
from virtco import hint_matrix
from virtco import units
from virtco_lab.cloud import accounts
from virtco_lab.cloud import layout as layouts
from virtco_lab.emulation import namespaces
from virtco_lab.emulation import process
from virtco_lab.emulation import traffic
from virtco_lab.emulation import transfers

_PORT = 5001
_WAIT_S = 180.0
_COMMAND_S = 600.0
_POLL_S = 1.0


@dataclasses.dataclass(frozen=True)
class Group:
    """Group of VMs that the demo launches, with its matrix as JSON."""

    name: str
    n_vms: int
    matrix: str


GROUPS = (
    Group('sort', 4, '{"pattern": "shuffle", "senders": 2, "receivers": 2, '
                     '"size": "40MB"}'),
    Group('train', 3, '{"pattern": "allreduce-ring", "n": 3, '
                      '"size": "20MB"}'),
    Group('copy', 3, '{"pattern": "broadcast", "receivers": 2, '
                     '"size": "20MB"}'),
)


class TooSmall(exception.VirtcoException):
    """The cloud has fewer slots than the demo has VMs."""

    msg_fmt = ('The demo launches %(needed)d VMs; this cloud has '
               '%(slots)d slots (%(computes)d hypervisors of %(each)d). '
               'tools/cloud up --computes and --slots set them.')


class NotReached(exception.VirtcoException):
    """A coflow or a command did not reach an awaited state in time."""

    msg_fmt = '%(what)s did not happen within %(limit_s)g s; it is %(now)s.'


def show(layout: layouts.Layout, out: console.Console,
         groups: tuple[Group, ...] = GROUPS) -> int:
    """Print planned and measured CCTs; 0 when all coflows are done."""
    needed = sum(group.n_vms for group in groups)
    slots = len(layout.computes) * layout.slots
    if needed > slots:
        raise TooSmall(needed=needed, slots=slots, each=layout.slots,
                       computes=len(layout.computes))
    tenant = Client(layout, accounts.TENANT)
    try:
        for group in groups:
            began_s = time.monotonic()
            tenant.run('server', 'create', '--image', accounts.IMAGE,
                       '--flavor', accounts.FLAVOR, '--network',
                       accounts.NETWORK, '--min', str(group.n_vms), '--max',
                       str(group.n_vms), '--hint',
                       f'virtco:coflow={group.name}', '--hint',
                       f'virtco:tm={group.matrix}', '--wait', group.name)
            out.print(f'{group.name}: {group.n_vms} VMs active after '
                      f'{time.monotonic() - began_s:.0f} s')
        # A coflow whose VMs are all on one host is done with their start.
        _wait('every coflow active', tenant, groups, {'active', 'done'})
        outcome = _send(layout, groups, out)
        _wait('every coflow done', tenant, groups, {'done'})
        _print(tenant, groups, outcome, out)
    finally:
        tenant.delete({group.name for group in groups})
    return 0


class Client:
    """The real openstack client in the control namespace."""

    def __init__(self, layout: layouts.Layout, user: str):
        self._prefix = [*namespaces.within(layout.control),
                        process.script('openstack')]
        self._environment = {**os.environ, 'PYTHONWARNINGS': 'ignore',
                             **layout.environment(user)}

    def run(self, *words: str) -> str:
        """Run a command of the client; return its output.

        :raises exception.VirtcoException: with the client's error.
        :raises NotReached: when the command does not end, as one that waits
            for a server that is never built.
        """
        try:
            done = subprocess.run(
                [*self._prefix, *words], text=True, env=self._environment,
                capture_output=True, timeout=_COMMAND_S)
        except subprocess.TimeoutExpired as error:
            raise NotReached(
                what=f'The end of openstack {" ".join(words[:2])}',
                limit_s=_COMMAND_S, now='running') from error
        if done.returncode:
            raise exception.VirtcoException(
                f'openstack {" ".join(words[:2])}: {done.stderr.strip()}')
        return done.stdout

    def json(self, *words: str) -> Any:
        """Run a command of the client; return its output, decoded from JSON.

        :raises exception.VirtcoException: with the client's error.
        """
        return json.loads(self.run(*words, '-f', 'json'))

    def coflows(self) -> dict[str, dict[str, Any]]:
        """Read the newest coflow of each name."""
        return {row['name']: row for row in sorted(
            self.json('coflow', 'list'), key=lambda row: row['arrival'] or 0)}

    def delete(self, groups: Collection[str]) -> None:
        """Delete the servers of groups, and wait until they are gone."""
        found = [server['ID'] for server in self.json('server', 'list')
                 if server['Name'].rpartition('-')[0] in groups]
        if found:
            self.run('server', 'delete', '--wait', *found)


def _wait(what: str, tenant: Client, groups: tuple[Group, ...],
          wanted: set[str]) -> None:
    """Wait until the groups' coflows are in one of the wanted states."""
    end_s = time.monotonic() + _WAIT_S
    while True:
        found = tenant.coflows()
        now = {group.name: found.get(group.name, {}).get('state', 'absent')
               for group in groups}
        if set(now.values()) <= wanted:
            return
        if time.monotonic() > end_s:
            raise NotReached(what=what, limit_s=_WAIT_S, now=now)
        time.sleep(_POLL_S)


def _send(layout: layouts.Layout, groups: tuple[Group, ...],
          out: console.Console) -> list[float]:
    """Send the groups' bytes; return the receivers' CCTs in seconds."""
    servers = namespaces.call(layout.control, lambda: [
        (server.name, server.id, server.compute_host, ip['addr'])
        for server in accounts.connect(layout).compute.servers(
            all_projects=True, status='ACTIVE')
        for ips in server.addresses.values() for ip in ips])
    flows, ends = [], []
    for number, group in enumerate(groups):
        # Nova numbers the servers of a request from 1.
        vms = sorted((row for row in servers
                      if row[0].rpartition('-')[0] == group.name),
                     key=lambda row: int(row[0].rpartition('-')[2]))
        for name, _uuid, host, _ip in vms:
            out.print(f'  {name} on {host}', highlight=False)
        coflow, = hint_matrix.parse_matrix_text(group.matrix, group.name)
        for flow in coflow.flows:
            src, dst = vms[flow.src], vms[flow.dst]
            ends.append((src[2], dst[2]))
            flows.append(traffic.FlowSpec(
                number, layout.vm_namespace(src[1]),
                layout.vm_namespace(dst[1]), dst[3], _PORT + number,
                int(flow.size_bytes), src[2] if src[2] == dst[2] else None))
    total_bytes = sum(flow.size_bytes for flow in flows)
    out.print(f'sending {units.format_size(total_bytes)} …')
    job = traffic.Job(
        (0.0,) * len(groups), tuple(flows),
        window_bytes=traffic.window_bytes(ends, layout.rate_bps))
    with transfers.Transfer(job, layout.home / 'traffic.log') as transfer:
        return list(transfer.run().ccts_s)


def _print(tenant: Client, groups: tuple[Group, ...], seen_s: list[float],
           out: console.Console) -> None:
    rows = tenant.coflows()
    shown = table.Table('Coflow', 'Planned', 'Measured', 'Seen by receivers')
    for group, one_s in zip(groups, seen_s):
        row = rows[group.name]
        shown.add_row(group.name, *(
            '-' if value is None else units.format_time(value)
            for value in (row['cct_s'], row['measured_cct_s'], one_s)))
    out.print(shown)
