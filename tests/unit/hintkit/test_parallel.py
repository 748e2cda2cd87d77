# SPDX-License-Identifier: Apache-2.0

"""Parallel groups of ranks, and what they send."""

import pytest

from virtco import exception
from virtco_tenant.hintkit import parallel


def workload(sums=None, n_stages=1, **sizes):
    return parallel.Workload('file', ((None, sums or {}),) * n_stages, {
        f'{group}_group': size for group, size in sizes.items()})


@pytest.mark.parametrize(('group', 'ranks'), [
    ('tp_group', [12, 13]), ('ep_group', [13, 15]),
    ('ep_tp_group', [12, 13, 14, 15]), ('dp_group', [9, 11, 13, 15]),
    ('ep_dp_group', [9, 13]), ('pp_group', [5, 13, 21]),
    ('embedding_group', [5, 21]), ('all_nodes', list(range(24)))])
def test_groups_of_a_rank(group, ranks):
    """Of three stages of eight ranks, the second one's sixth."""
    layout = workload(tp=2, ep=2, pp=3).layout(24)
    assert list(layout.group_of(13, group)) == ranks


@pytest.mark.parametrize(('pp', 'ranks'), [
    (1, [1]), (2, [1, 9]), (4, [1, 13])])
def test_the_embedding_is_at_both_ends_of_the_pipeline(pp, ranks):
    layout = workload(pp=pp).layout(16)
    assert list(layout.group_of(1, 'embedding_group')) == ranks


def test_there_are_as_few_ranks_as_there_can_be():
    assert workload().layout().world_size == 1
    assert workload().layout(1).per_stage == 1
    assert workload(tp=2, pp=3).layout().world_size == 6
    assert workload(tp=2, pp=3, dp=5).layout().world_size == 30
    assert workload(tp=2, n_stages=3).layout().world_size == 6


def test_there_are_65536_ranks_at_most():
    assert workload().layout(65536).world_size == 65536
    with pytest.raises(exception.InputInvalid, match='1 to 65536 ranks'):
        workload().layout(65537)


def test_all_that_is_sent_is_counted_once():
    """In rings of two each rank sends all that it has once."""
    job = workload({('all_reduce', 'tp_group', ''): 8.0,
                    ('all_reduce', 'dp_group', ''): 6.0}, tp=2)
    flows, inside_bytes, by_group = job.flows(job.layout(4), 2)
    assert flows == {(0, 1): 12.0, (1, 0): 12.0}
    assert inside_bytes == 32.0
    assert by_group == {'tp_group': 32.0, 'dp_group': 24.0}
