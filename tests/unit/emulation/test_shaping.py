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

import pytest

from virtco.emulation import shaping


def test_both_ways_have_the_rate():
    lines = shaping.limit_commands('h0', 4e7)
    for dev in ('h0', 'ifb-h0'):
        assert any(f'class add dev {dev} ' in line
                   and 'rate 40000000bit ceil 40000000bit' in line
                   for line in lines)
    assert any('mirred egress redirect dev ifb-h0' in line for line in lines)


@pytest.mark.parametrize('rate_bps, queue', [(1e6, 131072), (1e9, 2500000)])
def test_queue_is_neither_short_nor_long(rate_bps, queue):
    lines = shaping.limit_commands('h0', rate_bps)
    assert sum(f'bfifo limit {queue}' in line for line in lines) == 2


def test_change_touches_rates_and_queues_only():
    lines = shaping.limit_commands('h0', 4e7, verb='change')
    assert len(lines) == 4
    assert all(line.split()[:2] in (['class', 'change'], ['qdisc', 'change'])
               for line in lines)
