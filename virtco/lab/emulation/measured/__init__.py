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

"""Figures about measuring a network, with real packets: by name."""

from collections.abc import Callable

from virtco.lab.emulation import display as displays
from virtco.lab.emulation.measured import bed
from virtco.lab.emulation.measured import crosstraffic
from virtco.lab.emulation.measured import greedy
from virtco.lab.emulation.measured import lengths
from virtco.lab.emulation.measured import matrices
from virtco.lab.emulation.measured import stability
from virtco.lab.emulation.measured import trains
from virtco.lab.sim.figures import outcome

FIGURES: dict[str, Callable[[bed.Options, displays.Display],
                            outcome.Outcome]] = {
    'choreo-4': crosstraffic.figure4,
    'choreo-6': trains.figure6,
    'choreo-7': stability.figure7,
    'choreo-8': lengths.figure8,
    'choreo-9': greedy.figure9,
    'choreo-90': trains.pairs90,
    'monitoring-1': matrices.figure1,
}
