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

"""The evaluation, one function per figure or table."""

from collections.abc import Callable

from virtco.lab.sim.figures import choreo
from virtco.lab.sim.figures import hints
from virtco.lab.sim.figures import orchestra
from virtco.lab.sim.figures import outcome
from virtco.lab.sim.figures import virtco

FIGURES: dict[str, Callable[[outcome.Context], outcome.Outcome]] = {
    'virtco-case1': virtco.case1,
    'virtco-case2': virtco.case2,
    'virtco-case3': virtco.case3,
    'virtco-case4': virtco.case4,
    'virtco-case5': virtco.case5,
    'virtco-case6': virtco.case6,
    'choreo-fig10a': choreo.figure10a,
    'choreo-fig10b': choreo.figure10b,
    'choreo-greedy': choreo.greedy,
    'orchestra-table3': orchestra.table3,
    'orchestra-fig14': orchestra.figure14,
    'orchestra-fig15': orchestra.figure15,
    'wrong-hints': hints.wrong_hints,
    'liars': hints.liars,
}
