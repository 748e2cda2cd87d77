# SPDX-License-Identifier: Apache-2.0

"""What the class of a training job may take of a link."""

import dataclasses

import numpy as np
import pytest

from edge_module.tcplan import model
from edge_module.tcplan import shape
from tests.unit.decide import test_lateness
from tests.unit.decide import test_policy_documents as given_by
from virtco.decide import policy_documents
from virtco.wire import edge_policy

PAIR = test_lateness.FIRST


def ceils(coflow, work_conserving):
    """Of its class on its sender's link beside another coflow's, as the edge
    module makes it of the document; and the rate that the document gives it.
    """
    seen = given_by.at(
        coflow, given_by.coflow('other', {PAIR: 1e9}, moved_s=100.0),
        work_conserving=work_conserving)
    document = policy_documents.compute(seen).of_host['h0'].policy()
    read = edge_policy.EdgePolicy.from_dict(document.to_dict())
    tree = shape.build_tree(read, given_by.LINK_BPS)
    made, = (one for one in read.classes if one.coflow_id == 'a')
    return [(tree[one.minor].ceil_bps, model.whole_bps(one.rate_bps))
            for one in (made, made.destinations[0])]


@pytest.mark.parametrize('work_conserving', [False, True])
@pytest.mark.parametrize('send_s', [0.1, 5.0, 30.0])
@pytest.mark.parametrize('compute_s', [1.0, 40.0])
def test_a_job_gets_no_larger_ceil_than_any_other_class(
        compute_s, send_s, work_conserving):
    job = test_lateness.job('a', PAIR, compute_s, send_s, moved_s=100.0)
    once = dataclasses.replace(job, live=job.live._replace(
        compute_s=0.0, whole=None))
    found, plain = ceils(job, work_conserving), ceils(once, work_conserving)
    for (ceil_bps, rate_bps), (plain_bps, _) in zip(found, plain):
        if work_conserving:
            assert ceil_bps == plain_bps == given_by.LINK_BPS
        else:
            assert ceil_bps == rate_bps


def test_two_jobs_without_end_share_a_link():
    """Under ``ceil = rate`` both together have no more than the link."""
    seen = given_by.at(*(
        test_lateness.job(name, PAIR, 1.0, 5.0, moved_s=100.0)
        for name in 'ab'), work_conserving=False)
    document = policy_documents.compute(seen).of_host['h0'].policy()
    tree = shape.build_tree(document, given_by.LINK_BPS)
    assert np.sum([tree[one.minor].ceil_bps for one in document.classes]
                  ) <= given_by.LINK_BPS
