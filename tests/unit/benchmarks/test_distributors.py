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

"""What processes note of their edges for the one that measures."""

from benchmarks import distributors


def test_one_reads_what_another_noted(tmp_path):
    here, there = (distributors.Times(tmp_path / 'times', 3)
                   for _ in range(2))
    assert here.came_s() == []
    there.by_number[2] = 7.5
    there.by_number[0] = 6.5
    assert here.came_s() == [6.5, 7.5]
    here.clear()
    assert there.came_s() == []
