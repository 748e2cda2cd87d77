# SPDX-License-Identifier: Apache-2.0

"""``virtco hint check`` asks a real controller."""

from tests.unit.hintkit import running
from virtco.client import v1

PAIR = '[[0, "5GB"], ["1GB", 0]]'


def test_what_if(make):
    controller = make()
    tenant = controller.tenant()
    tenant.edges(['h0', 'h1'])
    client = v1.Client(controller.url)
    asked = ('check', PAIR, '--controller', controller.url)
    screen = ' '.join(running.hint(*asked, '--slots', '1',
                                   client=client).split())
    assert 'What-if, now, on the 2 hosts' in screen
    assert screen.count(f'.{tenant.number}') >= 2
    assert 'do not fit onto 2 hosts' in running.hint(
        'check', '{"pattern": "ring", "n": 3, "size": 5}', '--slots', '1',
        '--controller', controller.url, client=client)
    controller.stop()
    screen = ' '.join(running.hint(*asked, client=client).split())
    assert screen.endswith('did not answer: connection refused.')
