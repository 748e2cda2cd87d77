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

"""States of coflows and of a group's members."""

import enum


class CoflowState(enum.StrEnum):
    REGISTERED = 'registered'
    PLANNED = 'planned'
    ACTIVE = 'active'
    DONE = 'done'
    RETIRED = 'retired'


#: In these a coflow waits for its VMs or sends.
LIVE_STATES = (CoflowState.PLANNED, CoflowState.ACTIVE)


class MemberState(enum.StrEnum):
    """PLANNED: a host but no VM yet. RESERVED: its VM was given the host.
    RUNNING: Nova built it. VACANT: neither host nor VM.
    """

    VACANT = 'vacant'
    PLANNED = 'planned'
    RESERVED = 'reserved'
    RUNNING = 'running'
