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

"""Holds a job's iterations back until its gate opens, by counters alone. Pure.

The job is not asked. An iteration begins where bytes wait in the job's queue,
and has ended where as many bytes were counted as it has, and none wait. A
closed gate is a small rate; an open one the link's.
"""

from virtco.scheduling.periodic import rehearsal

#: Of an iteration's bytes: less is no beginning but the end of the one before,
#: such as packets that TCP sends again.
A_LITTLE = 0.01
#: Share of the gate's period: what is later waits for the next turn. Counters
#: and rates are late themselves.
MOST_LATE = 0.2
#: This much of an iteration was counted at its end. Sizes are hints.
NEARLY = 0.97


class Keeper:
    """One job's gate.

    :ivar is_open: whether the job may send at the link's rate.
    :ivar opened: times at which it opened.
    :ivar held_s: for how long all iterations together were held back.
    """

    def __init__(self, gate: rehearsal.Gate, iteration_bytes: float,
                 most_late: float = MOST_LATE):
        self.is_open = False
        self.opened = 0
        self.held_s = 0.0
        self._gate, self._iteration_bytes = gate, iteration_bytes
        self._most_late = most_late
        self._began_bytes = 0.0
        self._ready_s: float | None = None
        self._opens_s = 0.0

    def look(self, now_s: float, sent_bytes: float, waiting_bytes: float
             ) -> bool:
        """Whether the gate is open from now on.

        :param now_s: on the clock of the gate's offset.
        :param sent_bytes: counted of the job since its first.
        :param waiting_bytes: in its queue.
        """
        if self.is_open:
            if waiting_bytes <= 0 and (sent_bytes - self._began_bytes
                                       >= NEARLY * self._iteration_bytes):
                self.is_open = False
                self._began_bytes = sent_bytes
            return self.is_open
        if self._ready_s is None and (
                waiting_bytes >= A_LITTLE * self._iteration_bytes):
            self._ready_s = now_s
            # A drift beyond a share of the period waits for the next turn.
            self._opens_s = self._gate.opens_s(now_s, self._most_late)
        if self._ready_s is not None and now_s >= self._opens_s:
            self.held_s += now_s - self._ready_s
            self._ready_s = None
            self.is_open = True
            self.opened += 1
        return self.is_open
