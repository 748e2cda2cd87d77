# SPDX-License-Identifier: Apache-2.0

"""Rows of a group that is new, and the bounds of its project."""

from collections.abc import Sequence
import uuid

from oslo_config import cfg
from sqlalchemy import orm

from virtco import exception
from virtco import hints
from virtco import units
from virtco.db import codec
from virtco.db import groups as db_groups
from virtco.db import models
from virtco.db import records
from virtco.model import coflow as coflow_model
from virtco.model import states

#: Bytes of all living groups of a project: ten of the largest.
MAX_PROJECT_BYTES = 1e18

# A group, its members by row and its coflows.
Rows = tuple[models.Group, list[models.Member], list[models.Coflow]]


def limits_of(conf: cfg.ConfigOpts) -> hints.Limits:
    """Return the limits of hints in a configuration."""
    return hints.Limits(
        max_vms=conf.limits.max_vms_per_group,
        max_flows=conf.limits.max_flows_per_group)


def check_project(session: orm.Session, conf: cfg.ConfigOpts,
                  project_id: str, matrices: Sequence[coflow_model.Coflow],
                  n_new: int) -> None:
    """Check that a project may have these coflows, too.

    :param n_new: groups beside those that live.
    :raises virtco.exception.HintInvalid: more than a bound of the project.
    """
    bounds = conf.limits
    n_groups, n_flows, size_bytes = db_groups.usage(session, project_id)
    n_flows += sum(len(matrix.matrix) for matrix in matrices)
    size_bytes += sum(matrix.size_bytes for matrix in matrices)
    for field, value, most, shown in (
            ('groups', n_groups + n_new, bounds.max_groups_per_project, str),
            ('flows', n_flows, bounds.max_flows_per_project, str),
            ('bytes', size_bytes, MAX_PROJECT_BYTES, units.format_size)):
        if value > most:
            raise exception.HintInvalid(
                field=f'{field} of the project', value=shown(value),
                limit=f'at most {shown(most)} in living groups')


def new_group(session: orm.Session, project_id: str, hint: hints.Hint,
              matrices: Sequence[coflow_model.Coflow], now_s: float) -> Rows:
    """Make a group whose VMs are to come, with its members and coflows."""
    group = models.Group(
        id=str(uuid.uuid4()), project_id=project_id, name=hint.coflow_name,
        n_vms=matrices[0].n_vms, created_at=now_s,
        app=hint.app.name if hint.app is not None else '')
    members = [models.Member(group_id=group.id, row_index=row,
                             state=states.MemberState.VACANT)
               for row in range(group.n_vms)]
    return group, members, new_coflows(session, group, matrices, now_s)


def new_coflows(session: orm.Session, group: models.Group,
                matrices: Sequence[coflow_model.Coflow], now_s: float
                ) -> list[models.Coflow]:
    """Make coflows of a group, in the class of its project."""
    given = records.project(session, group.project_id)
    return [models.Coflow(
        id=str(uuid.uuid4()), group_id=group.id,
        project_id=group.project_id, name=matrix.name, position=i,
        state=states.CoflowState.PLANNED, n_vms=matrix.n_vms,
        n_flows=len(matrix.matrix), size_bytes=matrix.size_bytes,
        dst_port=matrix.dst_port, iterations=matrix.iterations,
        period_s=matrix.period_s, compute_s=matrix.compute_s,
        served_by=matrix.order, rank_hint=matrix.rank_hint,
        is_estimated=matrix.is_estimated,
        tm=codec.encode_matrix(matrix.matrix),
        priority_class=given.priority_class, weight=given.weight,
        created_at=now_s)
        for i, matrix in enumerate(matrices)]
