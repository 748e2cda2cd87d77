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

"""Time to spend, by whatever clock is given."""

from collections.abc import Callable

#: Looks at a node, the unit of the kernels' limits, per second.
LOOKS_PER_S = 20e6


class Budget:
    """Seconds that a stage may take; it asks, nobody stops it.

    :ivar asked_late: whether anybody was told that the time is over.
    """

    def __init__(self, clock: Callable[[], float], seconds: float):
        self._clock = clock
        self._until_s = clock() + seconds
        self.asked_late = False

    def left_s(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self._until_s - self._clock())

    def in_time(self) -> bool:
        """Whether there is time left."""
        if self._clock() < self._until_s:
            return True
        self.asked_late = True
        return False

    def looks(self) -> int:
        """Looks at a node that fit into what is left, about."""
        return int(LOOKS_PER_S * self.left_s())

    def slice(self, share: float, kept_s: float = 0.0) -> 'Budget':
        """A share of what is left.

        :param kept_s: of what is left, for whoever comes last.
        """
        return Budget(self._clock,
                      share * max(0.0, self.left_s() - kept_s))
