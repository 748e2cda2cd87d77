# SPDX-License-Identifier: Apache-2.0


import dataclasses
import math

import pytest

from tests.unit.solver import problems
from virtco import exception
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import matrix
from virtco.model import snapshot
from virtco.solver.model import validation

HOST = cluster.Host('h', (2.0,), 8.0, 8.0)
RACK = cluster.Subtree('r', 8.0, 8.0)


def refused(**changes):
    """Field that is named; None where the problem makes sense."""
    try:
        validation.check(problems.fig_1_problem(**changes))
    except exception.Invalid as error:
        return error.kwargs['field']
    return None


def hosts(**changes):
    return {'hosts': (dataclasses.replace(HOST, **changes),)}


def trees(*changes, leaf='r'):
    """A rack, as changed, again and again."""
    return {'tree': cluster.Tree(tuple(
        dataclasses.replace(RACK, **one) for one in changes), {'h': leaf})}


def vms(**changes):
    return {'vms': (dataclasses.replace(cluster.Vm('v', (1.0,)), **changes),),
            'coflows': (), 'hosts': (HOST,)}


def flows(*found):
    return {'coflows': (coflow.Coflow(
        'c', matrix.Matrix.of(3, *zip(*found))),)}


def groups(*members):
    return {'server_groups': (snapshot.ServerGroup(
        snapshot.GroupPolicy.AFFINITY, members),)}


@pytest.mark.parametrize('changes', [
    {}, hosts(free=(-1.0,)), hosts(egress_bps=0.0, ingress_bps=math.inf),
    trees({'uplink_out_bps': 0.0, 'uplink_in_bps': math.inf}),
    hosts() | trees({}), trees({'parent': 'p'}, {'name': 'p'}),
    vms(demand=(0.0,)), vms(pinned='h'), flows((0, 2, 0.0)),
    {'pair_rate_bps': {('h0', 'h1'): 0.0}}, groups(0, 2)])
def test_what_makes_sense_is_taken(changes):
    assert refused(**changes) is None


@pytest.mark.parametrize('field, changes', [
    ('hosts', {'hosts': (HOST, HOST)}),
    ('tree.subtrees', trees({}, {})),
    ('h.free', hosts(free=())),
    ('h.free', hosts(free=(1.0, 1.0))),
    ('h.free', hosts(free=(math.nan,))),
    ('h.free', hosts(free=(math.inf,))),
    ('h.free', hosts(free=(1.0, math.nan)) | {'resources': ('cpu', 'disk')}),
    ('h.egress_bps', hosts(egress_bps=-1e-9)),
    ('h.egress_bps', hosts(egress_bps=math.nan)),
    ('h.ingress_bps', hosts(ingress_bps=-1e-9)),
    ('h.ingress_bps', hosts(ingress_bps=math.nan)),
    ('tree.leaf_of[h]', trees({}, leaf='elsewhere')),
    ('r.parent', trees({'parent': 'elsewhere'})),
    ('r.parent', trees({'parent': 'r'})),
    ('r.parent', trees({'parent': 'p'}, {'name': 'p', 'parent': 'r'})),
    ('r.uplink_out_bps', trees({'uplink_out_bps': -1e-9})),
    ('r.uplink_in_bps', trees({'uplink_in_bps': math.nan})),
    ('v.demand', vms(demand=(-1e-9,))),
    ('v.demand', vms(demand=(math.inf,))),
    ('v.demand', vms(demand=(1.0, 1.0))),
    ('v.pinned', vms(pinned='elsewhere')),
    ('c.flows', flows((3, 0, 1.0))),
    ('c.flows', flows((0, 3, 1.0))),
    ('c.flows', flows((-1, 0, 1.0))),
    ('c.size_bytes', flows((0, 1, -1e-9))),
    ('c.size_bytes', flows((0, 1, math.inf))),
    ('c.size_bytes', flows((0, 1, math.nan))),
    ("pair_rate_bps('h0', 'h1')", {'pair_rate_bps': {('h0', 'h1'): -1e-9}}),
    ("pair_rate_bps('h0', 'h1')", {'pair_rate_bps': {
        ('h0', 'h1'): math.nan}}),
    ('server_groups.members', groups(0, 3)),
    ('server_groups.members', groups(-1)),
])
def test_nonsense_is_refused_by_name(field, changes):
    assert refused(**changes) == field


def test_the_end_that_is_unknown_is_shown():
    for ends in ((7, 0), (0, 7)):
        with pytest.raises(exception.Invalid) as caught:
            validation.check(problems.fig_1_problem(**flows((*ends, 1.0))))
        assert caught.value.kwargs['value'] == 7


@pytest.mark.parametrize('objective_s, bound_s, gap', [
    (3.0, 2.0, 0.5), (2.0, 2.0, 0.0), (1.0, 2.0, 0.0), (1.0, 0.0, math.inf)])
def test_the_gap_is_relative_to_the_bound(objective_s, bound_s, gap):
    progress = snapshot.Progress('stage', 1.0, objective_s, bound_s, ())
    assert progress.gap == gap


def test_pinned_vms_are_not_compared_with_each_host():
    n_hosts, compared = 50, []

    class Name(str):
        __hash__ = str.__hash__

        def __eq__(self, other):
            compared.append(other)
            return str.__eq__(self, other)

    validation.check(snapshot.PlacementProblem(
        tuple(cluster.Host(Name(f'h{i}'), (1.0,), 8.0, 8.0)
              for i in range(n_hosts)),
        tuple(cluster.Vm(f'v{i}', (1.0,), pinned=f'h{i}')
              for i in range(n_hosts)), ()))
    assert len(compared) <= 2 * n_hosts
