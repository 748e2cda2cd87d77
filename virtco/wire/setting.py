# SPDX-License-Identifier: Apache-2.0

"""The operator's choices at run time, and the history of changes."""

from typing import Literal

import msgspec

from virtco.wire import operation

Planner = Literal['virtco', 'virtco-printed', 'spread', 'min-cut']
Objective = Literal['online', 'isolated', 'joint']
Order = Literal['mrtf', 'mrtf+swap', 'sebf', 'sincronia', 'fifo', 'fifo+',
                'priority', 'weighted-fair', 'fair', 'own']
Ceil = Literal['rate', 'link']


class Settings(operation.Response, frozen=True, kw_only=True):
    """Choices that hold now.

    :ivar planner: planner that chooses hosts.
    :ivar objective: objective that the planner minimises.
    :ivar order: order in which coflows are served.
    :ivar ceil: upper limit of a coflow's class at the edge.
    """

    planner: Planner
    objective: Objective
    order: Order
    ceil: Ceil


class SettingsChange(operation.Request, frozen=True, kw_only=True):
    """Choices to make; at least one field.

    :ivar planner: planner that chooses hosts.
    :ivar objective: objective that the planner minimises.
    :ivar order: order in which coflows are served.
    :ivar ceil: upper limit of a coflow's class at the edge.
    """

    planner: Planner | msgspec.UnsetType = msgspec.UNSET
    objective: Objective | msgspec.UnsetType = msgspec.UNSET
    order: Order | msgspec.UnsetType = msgspec.UNSET
    ceil: Ceil | msgspec.UnsetType = msgspec.UNSET


class Changed(operation.Response, frozen=True, kw_only=True):
    """A change that an operator made.

    :ivar at: time, in seconds since the epoch.
    :ivar who: name of the caller, or the address without authentication.
    :ivar what: changed thing: setting, host or topology.
    :ivar before: the value until then.
    :ivar after: the value since then.
    """

    at: float
    who: str
    what: str
    before: str
    after: str


class History(operation.Response, frozen=True):
    """Changes by operators.

    :ivar changes: the newest first.
    """

    changes: list[Changed]


SHOW = operation.Operation(
    'showSettings', 'GET', '/v1/settings', Settings,
    'Show the run-time settings.')
CHANGE = operation.Operation(
    'changeSettings', 'PATCH', '/v1/settings', Settings,
    'Change choices, for all processes and over restarts.',
    body=SettingsChange, conflict=operation.OVERTAKEN)
HISTORY = operation.Operation(
    'listChanges', 'GET', '/v1/settings/history', History,
    'List changes of settings, hosts and topologies by operators.')
