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
from virtco.model import coflow as coflow_model
from virtco.model import states

#: Of all living groups of a project: ten of the largest.
MAX_PROJECT_BYTES = 1e18


def limits_of(conf: cfg.ConfigOpts) -> hints.Limits:
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


def new_coflows(group: models.Group,
                matrices: Sequence[coflow_model.Coflow],
                given: models.Project, now_s: float) -> list[models.Coflow]:
    """Make the coflows of a group whose VMs are to come.

    :param given: what its project is given.
    """
    return [models.Coflow(
        id=str(uuid.uuid4()), group_id=group.id,
        project_id=group.project_id, name=matrix.name, position=i,
        state=states.CoflowState.PLANNED, n_vms=matrix.n_vms,
        n_flows=len(matrix.matrix), size_bytes=matrix.size_bytes,
        dst_port=matrix.dst_port, iterations=matrix.iterations,
        period_s=matrix.period_s, compute_s=matrix.compute_s,
        served_by=matrix.order,
        rank_hint=matrix.rank_hint, iteration=0,
        is_estimated=matrix.is_estimated,
        tm=codec.encode_matrix(matrix.matrix), progress='[]', sent_bytes=0.0,
        priority_class=given.priority_class, weight=given.weight, why='',
        created_at=now_s, deadline_at=None, is_promised=False)
        for i, matrix in enumerate(matrices)]


def vacant(group_id: str, index: int) -> models.Member:
    """Make a member of a new group without a VM."""
    return models.Member(
        group_id=group_id, row_index=index, instance_uuid=None,
        display_name='', reservation_id='', state=states.MemberState.VACANT,
        host=None, planned_host=None, expires_at=None, vcpus=0.0,
        memory_mb=0.0, disk_gb=0.0, placed_at=None, room_vcpus=None,
        room_memory_mb=None, room_disk_gb=None)
