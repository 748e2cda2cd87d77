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
"""Qdiscs that go are heard of, and nothing else is."""

import socket

import pytest

from edge_module import watch
from tests.netns.edge import bed as beds

pytestmark = pytest.mark.netns


def _tc(bed, *arguments):
    beds.run('tc', *arguments, netns=bed.ns('h1'))


@pytest.fixture
def heard(make_bed):
    """A watch in h1, and the names of what it says has lost a qdisc."""
    bed = make_bed(1)
    heard = beds.in_netns(bed.ns('h1'), watch.QdiscWatch)

    def names():
        indexes = dict(beds.in_netns(bed.ns('h1'), socket.if_nameindex))
        return {indexes[index] for index in heard.lost()}

    yield bed, heard, names
    heard.close()


def test_deleted_qdiscs_are_heard_of(heard):
    bed, watched, names = heard
    vm = bed.add_vm('h1')
    _tc(bed, 'qdisc', 'add', 'dev', 'uplink0', 'root', 'handle', '1:', 'htb')
    _tc(bed, 'qdisc', 'add', 'dev', vm.dev, 'clsact')
    _tc(bed, 'class', 'add', 'dev', 'uplink0', 'parent', '1:', 'classid',
        '1:9', 'htb', 'rate', '1mbit')
    _tc(bed, 'class', 'del', 'dev', 'uplink0', 'classid', '1:9')
    assert names() == set()
    _tc(bed, 'qdisc', 'del', 'dev', vm.dev, 'clsact')
    assert names() == {vm.dev} and names() == set()
    _tc(bed, 'qdisc', 'replace', 'dev', 'uplink0', 'root', 'handle', '2:',
        'tbf', 'rate', '1mbit', 'burst', '9k', 'limit', '9k')
    assert names() == {'uplink0'}


def test_more_than_the_kernel_keeps_is_not_forgotten(heard):
    bed, watched, names = heard
    _tc(bed, 'qdisc', 'add', 'dev', 'uplink0', 'clsact')
    batch = ('qdisc del dev uplink0 clsact\n'
             'qdisc add dev uplink0 clsact\n') * 3000
    beds.run('tc', '-batch', '-', netns=bed.ns('h1'), text=batch)
    assert watched.lost() is None
    # Read empty, it goes on.
    while watched.lost() is None:
        pass
    _tc(bed, 'qdisc', 'del', 'dev', 'uplink0', 'clsact')
    assert 'uplink0' in names()
