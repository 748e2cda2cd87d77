# SPDX-License-Identifier: Apache-2.0

"""The matrix of a group whose hint names an application and no matrix.

Earlier launches of the project tell it. Without one, or where the tenant
refuses it, every pair of VMs may send, and how much is estimated from what is
counted: see :class:`virtco.state.byte_counters.Estimated`.
"""

import dataclasses

from sqlalchemy import orm

from virtco import exception
from virtco import hint_matrix
from virtco import hints
from virtco.db import profile_rows as db_profiles
from virtco.model import coflow as coflow_model
from virtco.profiles import learning
from virtco.scheduling import pilots

#: Most VMs of an application not known yet: each pair needs a class and a
#: counter.
MOST_UNKNOWN_VMS = 64

Notes = tuple[tuple[str, str], ...]


def matrices(session: orm.Session, project_id: str, hint: hints.Hint,
             app: hints.App, n_vms: int, limits: hints.Limits
             ) -> tuple[tuple[coflow_model.Coflow, ...], Notes]:
    """Return the learned matrix, or one of unknown sizes, with notes.

    :param n_vms: servers of the request.
    :raises virtco.exception.HintInvalid:
    """
    if n_vms < 2 or (hint.index is not None and hint.index >= n_vms):
        raise exception.HintInvalid(
            field=hints.APP, value=repr(app.name),
            limit=f'{hints.TM} beside it, or at least 2 servers in one '
                  'request, the index among them')
    if app.refuses:
        return _unknown(hint, n_vms, limits, 'what was learned is refused')
    found = learning.learn(db_profiles.launches(
        session, project_id, app.name), n_vms)
    if found is None:
        return _unknown(hint, n_vms, limits, 'nothing is learned yet')
    try:
        known = hint_matrix.parse_matrix(found.tm, hint.coflow_name, limits)
    except exception.HintInvalid as error:
        return _unknown(hint, n_vms, limits, str(error))
    return known, (('app_learned', f'application {app.name}: '
                    f'{found.how}; {round(found.size_bytes)} bytes'),)


def _unknown(hint: hints.Hint, n_vms: int, limits: hints.Limits, why: str
             ) -> tuple[tuple[coflow_model.Coflow, ...], Notes]:
    """Build a matrix of guesses for an application not known yet."""
    most = min(MOST_UNKNOWN_VMS, limits.max_vms)
    n_flows = n_vms * (n_vms - 1)
    if n_vms > most or n_flows > limits.max_flows:
        raise exception.HintInvalid(
            field=hints.APP, value=f'{n_vms} servers and no {hints.TM}',
            limit=f'at most {most} servers where {why}')
    matrix = coflow_model.Coflow.from_flows(hint.coflow_name, n_vms, (
        (src, dst, pilots.FIRST_GUESS_BYTES)
        for src in range(n_vms) for dst in range(n_vms)), iterations=0)
    note = f'{why}: sizes are estimated while it sends'
    return (dataclasses.replace(matrix, is_estimated=True),), (
        ('app_unknown', note),)
