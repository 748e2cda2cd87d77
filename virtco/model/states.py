# SPDX-License-Identifier: Apache-2.0

"""States of coflows and of a group's members."""

import enum


class CoflowState(enum.StrEnum):
    """State in the life of a coflow."""

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
