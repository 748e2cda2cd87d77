# SPDX-License-Identifier: Apache-2.0

"""Rates of virtual functions: what a policy gives them, and the way there."""

import itertools

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
import pytest

from edge_module.classify import classified as classify
from edge_module.tcplan import minors
from edge_module.tcplan import shape
from edge_module.tcplan import vf_rates
from tests.unit.edge import test_tcplan

LINK_BPS = 1e9
#: A port's other traffic has 15 Mbit/s of it, and 30 for control packets.
DEFAULT_BPS = 20e6
FUNCTIONS = {number: vf_rates.Name('pci', '0000:03:00.0', number)
             for number in range(1, 5)}


def group(number):
    return vf_rates.Name('pci', '0000:03:00.0', None, number)


def rates(coflows, *senders, functions=FUNCTIONS, n_past=0):
    """Return the rates of a policy.

    :param senders: (ifindex, minor of a destination) of each flow.
    """
    tree = shape.build_tree(
        test_tcplan.policy(coflows, DEFAULT_BPS, LINK_BPS), LINK_BPS,
        n_past=n_past)
    return vf_rates.of_ports(tree, {
        classify.Entry(ifindex, '10.0.0.1', f'10.0.1.{place}'): minor
        for place, (ifindex, minor) in enumerate(senders)}, functions)


A = test_tcplan.coflow(0x10, 200e6, ceil_bps=300e6)
B = test_tcplan.coflow(0x20, 90.7e6, (2.0, 1.0), ceil_bps=1e9)
C = test_tcplan.coflow(0x30, 10e6, ceil_bps=20.5e6)


def test_functions_of_one_coflow_are_its_group():
    # The third port is no function, and has its part of the class.
    assert rates([A], (1, 0x11), (2, 0x11), (9, 0x11), (1, 0x11)) == {
        FUNCTIONS[1]: vf_rates.Rate(66, 345, 0x10),
        FUNCTIONS[2]: vf_rates.Rate(66, 345, 0x10),
        group(0x10): vf_rates.Rate(132, 345)}


def test_what_may_have_the_link_has_no_limit():
    assert rates([B], (1, 0x21), (1, 0x22), (2, 0x22)) == {
        FUNCTIONS[1]: vf_rates.Rate(75, 0, 0x20),
        FUNCTIONS[2]: vf_rates.Rate(15, 0, 0x20),
        group(0x20): vf_rates.Rate(90, 0)}
    nearly = test_tcplan.coflow(0x10, 1e6, ceil_bps=955e6)
    below = test_tcplan.coflow(0x10, 1e6, ceil_bps=954.9e6)
    assert rates([nearly], (1, 0x11))[FUNCTIONS[1]].most_mbps == 0
    assert rates([below], (1, 0x11))[FUNCTIONS[1]].most_mbps == 1000


def test_a_function_of_several_coflows_is_in_the_group_of_the_link():
    assert rates([A, C], (1, 0x11), (1, 0x31), (2, 0x31)) == {
        FUNCTIONS[1]: vf_rates.Rate(205, 366, minors.LINK),
        FUNCTIONS[2]: vf_rates.Rate(5, 66, 0x30),
        group(minors.LINK): vf_rates.Rate(205, 0),
        group(0x30): vf_rates.Rate(5, 66)}


def test_ceils_of_destinations_end_at_their_coflows():
    wide = test_tcplan.coflow(0x10, 100e6, (1.0, 1.0), ceil_bps=300e6)
    assert rates([wide], (1, 0x11), (1, 0x12))[FUNCTIONS[1]] == (
        vf_rates.Rate(100, 345, 0x10))


def test_a_destination_may_have_less_than_its_coflow():
    child, = A.destinations
    held = structs.replace(A, rate_bps=50e6, destinations=(
        structs.replace(child, rate_bps=50e6, ceil_bps=80e6),))
    assert rates([held], (1, 0x11)) == {
        FUNCTIONS[1]: vf_rates.Rate(50, 125, 0x10),
        group(0x10): vf_rates.Rate(50, 345)}


def test_ports_without_a_coflow_stay_free():
    assert rates([A], (1, minors.FIRST_PORT), (2, 0x7002), (3, 0x99)) == {}
    assert rates([A], (1, 0x11), functions={}) == {}


def test_limits_end_with_the_policys_time_to_live():
    found = rates([A, C], (1, 0x11), (2, 0x31), n_past=1)
    assert {rate.most_mbps for rate in found.values()} == {0}
    # Shares go on, of which the last rates decide half.
    assert found[FUNCTIONS[1]].share_mbps > found[FUNCTIONS[2]].share_mbps > 90


@given(test_tcplan.policies(), st.lists(st.tuples(
    st.integers(1, 6), st.integers(0x10, 0xf0)), max_size=12))
def test_guarantees_fit_the_link(policy, senders):
    tree = shape.build_tree(policy, test_tcplan.LINK_BPS)
    link_mbps = tree[minors.LINK].ceil_bps / 1e6
    found = vf_rates.of_ports(tree, {
        classify.Entry(ifindex, '10.0.0.1', f'10.0.1.{place}'): minor
        for place, (ifindex, minor) in enumerate(senders)}, FUNCTIONS)
    leaves = {name: rate for name, rate in found.items()
              if name.port is not None}
    assert sum(rate.share_mbps for rate in leaves.values()) <= link_mbps
    for name, rate in found.items():
        assert rate.share_mbps <= (rate.most_mbps or link_mbps)
        assert rate.most_mbps <= link_mbps + 1
        if name.port is None:
            assert rate.share_mbps == sum(
                one.share_mbps for one in leaves.values()
                if one.group == name.group)


FREE, ONE, TWO = (vf_rates.Rate(), vf_rates.Rate(10, 20, 0x10),
                  vf_rates.Rate(30, 0, 0x20))
OTHERS = [vf_rates.Rate(0, 50), vf_rates.Rate(1, 0),
          vf_rates.Rate(0, 0, vf_rates.OTHERS),
          vf_rates.Rate(5, 50, vf_rates.OTHERS)]


@pytest.mark.parametrize('rate, is_others', [
    (FREE, False), (ONE, False), (vf_rates.Rate(group=0x10), False),
    *((rate, True) for rate in OTHERS)])
def test_a_rate_without_our_group_is_anothers(rate, is_others):
    assert rate.is_others == is_others


class Card:
    """Does steps as the kernel does: net/devlink of Linux 6.1."""

    def __init__(self, rates):
        self.rates = dict(rates)

    def make(self, step):
        what, name, share_mbps, most_mbps, parent = step
        if what == 'delete':
            assert all(rate.group != name.group
                       for rate in self.rates.values()), 'has children'
            del self.rates[name]
            return
        assert (what == 'make') == (name not in self.rates)
        before = self.rates.get(name, FREE)
        if parent is not None:
            assert not (before.group and parent), 'already has parent'
            assert not parent or name._replace(
                port=None, group=parent) in self.rates
            before = before._replace(group=parent)
        self.rates[name] = vf_rates.Rate(
            before.share_mbps if share_mbps is None else share_mbps,
            before.most_mbps if most_mbps is None else most_mbps,
            before.group)


@pytest.mark.parametrize('first, then', list(itertools.product(
    [{}, {1: ONE}, {1: TWO}, {1: ONE, 2: TWO}, {1: ONE, 2: ONE},
     {1: vf_rates.Rate(10, 30, 0x10)}], repeat=2)))
def test_steps_lead_from_any_state_to_any_other(first, then):
    def whole(leaves):
        found = {FUNCTIONS[number]: rate for number, rate in leaves.items()}
        for rate in leaves.values():
            found[group(rate.group)] = rate._replace(group=0)
        return found

    anothers = {FUNCTIONS[3 + place]: rate for place, rate
                in enumerate(OTHERS[1:3])}
    card = Card({**dict.fromkeys(FUNCTIONS.values(), FREE),
                 **whole(first), **anothers})
    wanted = whole(then)
    steps = list(vf_rates.steps(card.rates, wanted))
    for step in steps:
        card.make(step)
        # A rate always has the mark of its owner.
        assert not any(rate.is_others for name, rate in card.rates.items()
                       if name.port is not None and name not in anothers)
    assert card.rates == {**dict.fromkeys(FUNCTIONS.values(), FREE),
                          **wanted, **anothers}
    assert list(vf_rates.steps(card.rates, wanted)) == []
    assert bool(steps) == (first != then)


def test_a_function_whose_rate_alone_changes_stays_in_its_group():
    have = {FUNCTIONS[1]: ONE, group(0x10): vf_rates.Rate(10, 20)}
    wanted = {FUNCTIONS[1]: ONE._replace(most_mbps=30), group(0x10):
              vf_rates.Rate(10, 20)}
    assert list(vf_rates.steps(have, wanted)) == [
        vf_rates.Step('set', FUNCTIONS[1], 10, 30)]


def test_a_function_joins_a_group_and_leaves_it_without_a_rate():
    free, held = {FUNCTIONS[1]: FREE}, {
        FUNCTIONS[1]: ONE, group(0x10): vf_rates.Rate(10, 20)}
    assert list(vf_rates.steps(free, held)) == [
        vf_rates.Step('make', group(0x10), 10, 20),
        vf_rates.Step('set', FUNCTIONS[1], group=0x10),
        vf_rates.Step('set', FUNCTIONS[1], 10, 20)]
    assert list(vf_rates.steps(held, {})) == [
        vf_rates.Step('set', FUNCTIONS[1], 0, 0),
        vf_rates.Step('set', FUNCTIONS[1], group=0),
        vf_rates.Step('delete', group(0x10))]


def test_what_the_card_does_not_have_is_left_out():
    assert list(vf_rates.steps({}, {FUNCTIONS[1]: ONE})) == []
    # One of another program stays, even where a rate is wanted.
    assert list(vf_rates.steps({FUNCTIONS[1]: OTHERS[0]},
                               {FUNCTIONS[1]: ONE})) == []
