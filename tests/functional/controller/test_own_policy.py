# SPDX-License-Identifier: Apache-2.0

"""A policy of one's own in a controller, installed as the docs say."""

import json
import os
import sys

import pytest

from tests import patience
from tests.functional.controller import harness
from virtco.osc import shell

#: Fewest flows first, ties by bytes; or as a file says.
POLICY = '''
import pathlib


class Mine:
    def order(self, coflows):
        mode = pathlib.Path(__file__).with_name('mode').read_text()
        if mode == 'raise':
            raise ValueError('no order')
        while mode == 'loop':
            pass
        return sorted(coflows, key=lambda c: (c.n_flows, c.left_bytes))
'''
MATRICES = {
    'wide': [[0, 1e6, 1e6, 1e6], [0] * 4, [0] * 4, [0] * 4],
    'pair': [[0, 9e6], [0, 0]],
    'tiny': [[0, 2e6], [0, 0]]}
FEWEST_FLOWS, LEAST_TIME = ['tiny', 'pair', 'wide'], ['tiny', 'wide', 'pair']


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Directory of an installed package with the policy."""
    info = tmp_path / 'mine-1.dist-info'
    info.mkdir()
    (info / 'METADATA').write_text('Metadata-Version: 2.1\nName: mine\n'
                                   'Version: 1\n')
    (info / 'entry_points.txt').write_text(
        '[virtco.policies]\nfewest-flows = mine:Mine\n')
    (tmp_path / 'mine.py').write_text(POLICY)
    (tmp_path / 'mode').write_text('')
    monkeypatch.setenv('PYTHONPATH', os.pathsep.join(
        [str(tmp_path), *filter(None, sys.path)]))
    return tmp_path


def test_an_installed_policy_orders_and_its_failures_harm_nobody(
        package, make, capsys):
    controller = make(is_exec=True)
    tenant = controller.tenant()
    for number, (name, matrix) in enumerate(MATRICES.items()):
        hosts = tenant.launch(
            len(matrix), first=10 * number, name=name, matrix=str(matrix),
            hosts={f'{name}{i}': 1 for i in range(len(matrix))})
        for i, host in enumerate(hosts):
            harness.Edge(tenant, host, [10 * number + i]).report()

    def run(*argv):
        assert shell.main(['--controller-url', controller.url, *argv, '-f',
                           'json']) == 0
        return json.loads(capsys.readouterr().out)

    def served():
        """Names of the active coflows, the first to be served first."""
        ranks = {one['name']: one['rank'] for one in run('coflow', 'list')
                 if one['rank'] is not None}
        return sorted(ranks, key=ranks.get)

    def wait(names):
        patience.wait_for(lambda: served() == names, names,
                          log=controller.log)

    wait(LEAST_TIME)
    assert run('settings', 'set', '--order', 'own')['order'] == 'own'
    wait(FEWEST_FLOWS)
    for mode, told in [('raise', 'no order.*mine.py, line 9'),
                       ('loop', 'no answer in')]:
        (package / 'mode').write_text(mode)
        wait(LEAST_TIME)
        assert controller.find_in_log(told)
        assert controller.call('GET', '/health')['status'] == 'ok'
        (package / 'mode').write_text('')
        wait(FEWEST_FLOWS)
