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

"""A few recorded cells of the evaluation come out of the present code.

Those of every figure: tests/evaluation; all: virtco-sim reproduce --check.
"""

from virtco.cmd import sim as command

QUICK = ('virtco-case1', 'choreo-greedy', 'orchestra-table3',
         'orchestra-fig14', 'orchestra-fig15', 'facebook-like', 'liars')


def test_short_check_of_quick_figures(capsys):
    code = command.main(['reproduce', 'all', '--check', '--short', '--only',
                         ','.join(QUICK)])
    assert code == 0, capsys.readouterr().err
