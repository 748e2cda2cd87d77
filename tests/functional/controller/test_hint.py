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
