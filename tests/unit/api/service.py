# SPDX-License-Identifier: Apache-2.0

"""The whole API over all rooms, in this thread and a database in memory."""

import json

import falcon
from falcon import testing
from oslo_policy import opts as policy_opts

from tests import answers
from tests.unit import made
from tests.unit import stored
from virtco import app
from virtco.api import errors
from virtco.api import routes
from virtco.db import models

NOW_S = 1000.0
#: Of each host that reports.
EGRESS_BPS = {'h0': 1e9, 'h1': 3e9, 'h2': 5e9}


class Clock:
    """Stands still."""

    def __init__(self):
        self.now_s = NOW_S

    def __call__(self):
        return self.now_s

    def check(self):
        pass


class Service:
    """The API over an App that leads in epoch 1, and runs no threads.

    Group ``a`` of project ``p`` has VMs ``i0`` … ``i2`` on hosts ``h0`` …
    ``h2``, which report, and a coflow ``c-p-a``.
    """

    def __init__(self, **groups):
        self.conf = stored.conf(
            database={'connection': 'sqlite://'},
            api={'auth_strategy': 'keystone'},
            # Patient: a busy machine is no fault.
            placement={'deadline_s': 30.0},
            monitoring={'names': True}, **groups)
        policy_opts.set_defaults(self.conf, 'policy.yaml')
        self.clock = Clock()
        self.rooms = app.App(self.conf, clock=self.clock)
        models.Base.metadata.create_all(self.rooms.database.engine)
        self.add(models.Cluster(id=1, generation=1, secret='s'),
                 models.Leader(id=1, epoch=1, beat=0, name='', address=''),
                 stored.group(), stored.coflow('p-a'),
                 *(stored.member('p-a', row, f'h{row}',
                                 instance_uuid=f'i{row}',
                                 planned_host=f'planned{row}')
                   for row in range(3)))
        self._lead()
        for host, egress_bps in EGRESS_BPS.items():
            self.rooms.state.report(host, made.report(
                link={'egress_bps': egress_bps, 'ingress_bps': 2e9}))
        self.rooms.decide.lead(self.rooms.leads)
        self.rooms.state.load()
        self.rooms.decide.loop.run_once()
        self.rooms.place.load_planner(is_used=False)
        # Keystone's middleware has named the caller in the headers.
        wsgi = falcon.App()
        errors.add_handlers(wsgi)
        routes.add(wsgi, self.conf, self.rooms)
        self.wsgi = testing.TestClient(wsgi)

    def _lead(self):
        elector = self.rooms.elector
        elector._clock = self.clock
        elector.epoch = self.rooms._epoch = 1
        self.rooms._policies.lead(1)
        elector.turn()

    def add(self, *rows):
        stored.add(self.rooms.database, *rows)

    def send(self, method, path, body=None, role='admin', project='p',
             user='u', headers=None):
        found = self.wsgi.simulate_request(
            method, path, json=body, headers={
                'X-Roles': role, 'X-Project-Id': project, 'X-User-Id': user,
                'X-User-Name': user, 'X-Identity-Status': 'Confirmed'
            } | (headers or {}))
        answers.check(method, path, found.status_code, found.content)
        return found

    def get(self, path, **kwargs):
        """Return the document, of a request that is answered."""
        found = self.send('GET', path, **kwargs)
        assert found.status_code == 200, found.text
        return found.json

    def refused(self, status, method, path, body=None, **kwargs):
        """Return what the error tells of the request."""
        found = self.send(method, path, body, **kwargs)
        assert found.status_code == status, found.text
        return found.json['error']


def hosts_in(document):
    """Hosts whose names stand anywhere in a document."""
    text = json.dumps(document)
    return {host for host in EGRESS_BPS if host in text}


def placement(row, name='g', project_id='p', n_vms=2, **changes):
    """Return Nova's question for one VM; its hosts have room for one each."""
    return {
        'project_id': project_id, 'user_id': 'u1',
        'display_name': f'{name}-{row}', 'reservation_id': f'r-{name}',
        'launch_index': row, 'num_instances': 1,
        'hints': {'virtco:coflow': name, 'virtco:tm': str(
            [[0] * n_vms, [10 ** 9] + [0] * (n_vms - 1)])},
        'metadata': {}, 'server_group': None,
        'flavor': {'vcpus': 1, 'memory_mb': 512, 'disk_gb': 1},
        'hosts': [{'host': host, 'node': host, 'free': {
            'vcpus': 1, 'memory_mb': 65536, 'disk_gb': 900}}
            for host in EGRESS_BPS]} | changes
