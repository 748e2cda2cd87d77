# SPDX-License-Identifier: Apache-2.0

"""How long the groups of a cloud take to be rebuilt from Nova alone.

``python -m benchmarks.rebuild`` serves the servers of 1,000 groups as Nova's
API pages them, drops the database, and calls ``virtco-manage rebuild``.
"""

import argparse
from http import server
import json
import pathlib
import tempfile
import threading
import time
from typing import Any
from urllib import parse

from virtco.cmd import manage


def bodies(n_groups: int, n_vms: int) -> list[dict]:
    """Servers of groups that shuffle, as microversion 2.100 tells them."""
    tm = json.dumps({'pattern': 'shuffle', 'senders': n_vms // 2,
                     'receivers': n_vms - n_vms // 2, 'size': '10GB'})
    return [body(group, vm, n_vms, tm)
            for group in range(n_groups) for vm in range(n_vms)]


def body(group: int, vm: int, n_vms: int, tm: str) -> dict:
    return {
        'id': f'{group:08x}-0000-0000-0000-{vm:012x}',
        'tenant_id': f'project-{group % 50}', 'name': f'vm-{vm}',
        'status': 'ACTIVE', 'created': '2026-01-01T00:00:00Z',
        'image': {'id': 'i'}, 'metadata': {},
        'OS-EXT-SRV-ATTR:host': f'host-{(group * n_vms + vm) % 500}',
        'OS-EXT-SRV-ATTR:launch_index': vm,
        'OS-EXT-SRV-ATTR:reservation_id': f'r-{group}',
        'flavor': {'vcpus': 2, 'ram': 4096, 'disk': 20, 'ephemeral': 0,
                   'swap': 0},
        'scheduler_hints': {'virtco:coflow': [f'group-{group}'],
                            'virtco:tm': [tm]}}


class Nova(server.ThreadingHTTPServer):
    """Lists servers as Nova does, by pages."""

    def __init__(self, found: list[dict[str, Any]]):
        super().__init__(('127.0.0.1', 0), Handler)
        self.found = found
        self.place = {body['id']: i for i, body in enumerate(found)}


class Handler(server.BaseHTTPRequestHandler):
    def log_message(self, *_args: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        query = dict(parse.parse_qsl(parse.urlsplit(self.path).query))
        assert isinstance(self.server, Nova)
        found, place = self.server.found, self.server.place
        start = place[query['marker']] + 1 if 'marker' in query else 0
        end = start + int(query['limit'])
        page: dict = {'servers': found[start:end]}
        if end < len(found):
            page['servers_links'] = [{'rel': 'next', 'href': ''}]
        content = json.dumps(page).encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def run(n_groups: int, n_vms: int, home: str) -> float:
    """Seconds, from the empty file to the end of the command."""
    with Nova(bodies(n_groups, n_vms)) as api:
        threading.Thread(target=api.serve_forever, daemon=True).start()
        config = pathlib.Path(home) / 'virtco.conf'
        config.write_text(
            '[distributor]\nport = 0\n'
            f'[controller]\nstate_dir = {home}\n'
            f'[database]\nconnection = sqlite:///{home}/virtco.sqlite\n'
            '[nova]\nauth_type = none\n'
            f'endpoint_override = http://127.0.0.1:{api.server_port}\n')
        for path in pathlib.Path(home).glob('virtco.sqlite*'):
            path.unlink()
        started_s = time.monotonic()
        for command in (['db', 'sync'], ['rebuild']):
            if manage.main(['--config-file', str(config), *command]):
                raise SystemExit('it failed')
        took_s = time.monotonic() - started_s
        api.shutdown()
        return took_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--groups', type=int, default=1000)
    parser.add_argument('--vms', type=int, default=8)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        took_s = run(args.groups, args.vms, home)
    print(f'{args.groups} groups of {args.vms} VMs: {took_s:.1f} s')


if __name__ == '__main__':
    main()
