# SPDX-License-Identifier: Apache-2.0

"""Laws of the way from one tree to another, and of leaves that are held."""

import dataclasses

from hypothesis import example
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
import pytest

from edge_module.tcplan import minors
from edge_module.tcplan import model
from edge_module.tcplan import shape
from edge_module.tcplan import steps
from tests.unit.edge import test_tcplan as made

LINK_BPS, coflow = made.LINK_BPS, made.coflow


def built(*classes):
    """Build the tree of a policy with these coflows."""
    return shape.build_tree(made.policy(classes), LINK_BPS)


def on_the_way(current, update):
    """Every tree on the way, one message after the other."""
    tree = dict(current)
    for item in (*update.lower, *update.rise):
        assert item.parent in tree or item.parent == minors.ROOT
        tree[item.minor] = item
        yield dict(tree)


def settle(current, desired):
    """Apply updates and their deletions until nothing changes."""
    for _ in range(3):
        update = steps.plan_update(current, desired)
        for tree in on_the_way(current, update):
            current = tree
        for minor in update.leave:
            assert all(item.parent != minor for item in current.values())
            del current[minor]
    return current


@given(made.policies(), made.policies())
def test_update_never_over_commits_and_ends_right(before, after):
    old = shape.build_tree(before, LINK_BPS)
    new = shape.build_tree(after, LINK_BPS)
    limit_bps = max(model.guaranteed_bps(old), model.guaranteed_bps(new))
    update = steps.plan_update(old, new)
    for tree in on_the_way(old, update):
        assert model.guaranteed_bps(tree) <= limit_bps + 8 * len(tree)
        # Whatever is classified has its class at every instant.
        assert set(old) <= set(tree)
    assert settle(old, new) == new


@given(made.policies(), made.policies(), st.integers(0, 60))
def test_update_may_be_broken_off_anywhere(before, after, cut):
    old = shape.build_tree(before, LINK_BPS)
    new = shape.build_tree(after, LINK_BPS)
    broken = old
    for index, tree in enumerate(on_the_way(old, steps.plan_update(old, new))):
        if index >= cut:
            break
        broken = tree
    assert settle(broken, new) == new


@given(made.policies())
def test_update_to_itself_is_empty(wanted):
    tree = shape.build_tree(wanted, LINK_BPS)
    update = steps.plan_update(tree, tree)
    assert update == steps.Update()


@given(made.policies())
def test_a_lost_tree_comes_back_at_full_rates(wanted):
    """What sends at an idle rate meanwhile would owe for a minute."""
    tree = shape.build_tree(wanted, LINK_BPS)
    update = steps.plan_update({}, tree)
    assert {item.minor: item for item in update.rise} == tree


@given(made.policies(), made.policies())
def test_new_classes_are_never_idle(before, after):
    old = shape.build_tree(before, LINK_BPS)
    new = shape.build_tree(after, LINK_BPS)
    del old[minors.HOST]
    for tree in on_the_way(old, steps.plan_update(old, new)):
        for minor in tree.keys() - old.keys():
            assert tree[minor] == new[minor]


def test_leaving_class_is_idle_and_last():
    old = built(coflow(0x10, 50e6, (1, 1)))
    new = built()
    update = steps.plan_update(old, new)
    assert update.leave[-1] == 0x10 and set(update.leave) == {
        0x10, 0x11, 0x12}
    assert {item.rate_bps for item in update.lower} == {
        model.IDLE_RATE_BPS}
    assert {item.prio for item in update.lower} == {model.LOWEST_PRIO}


def test_class_under_another_parent_leaves_first():
    old = built(coflow(0x10, 50e6, (1, 1)))
    moved = dict(old)
    moved[0x12] = dataclasses.replace(old[0x12], parent=minors.LINK)
    assert steps.plan_update(old, moved).leave == (0x12,)
    assert settle(old, moved) == moved
    # An inner class takes all below it along.
    moved = {**old, 0x10: dataclasses.replace(old[0x10],
                                              parent=minors.UNMANAGED)}
    assert steps.plan_update(old, moved).leave == (0x11, 0x12, 0x10)


def test_limited_destinations_leave_after_their_ports():
    new = made.policy([])
    old = shape.build_tree(structs.replace(new, unmanaged=made.unmanaged(
        {1: 4e6})), LINK_BPS, ports=[4])
    new = shape.build_tree(new, LINK_BPS, ports=[4])
    assert settle(old, new) == new


@given(made.policies(), st.integers(0, 12))
@example(made.policy([coflow(0x10, 1e6, (1,)), coflow(0x20, 1e6, (1, 1)),
                 coflow(0x30, 1e6, (1, 1))], LINK_BPS - 40), 0)
def test_held_leaves_may_borrow_more_and_are_given_no_more(wanted, number):
    settings = model.TreeSettings()
    tree = shape.build_tree(wanted, LINK_BPS, settings)
    leaves = [minor for minor in tree if minor >> 4 == number + 1
              and tree[minor].limit_bytes is not None]
    held = steps.hold(tree, tree, leaves, settings)
    for minor, have in held.items():
        assert dataclasses.replace(
            have, ceil_bps=tree[minor].ceil_bps) == tree[minor]
        assert tree[minor].ceil_bps <= have.ceil_bps <= tree[1].ceil_bps
        if minor in leaves:
            way = [minor, have.parent]
            assert all(held[item].ceil_bps >= settings.whole_ceil_bps
                       for item in way)
        elif have.parent == minors.LINK and not any(
                held[leaf].parent == minor for leaf in leaves):
            assert have == tree[minor]


@given(made.policies(), made.policies(), st.data())
def test_held_leaves_keep_what_a_super_packet_asks_for(before, after, data):
    settings = model.TreeSettings()
    old = shape.build_tree(before, LINK_BPS, settings)
    new = shape.build_tree(after, LINK_BPS, settings)
    leaves = [minor for minor, item in old.items() if item.limit_bytes
              and model.is_data(minor) and item.parent == new.get(
                  minor, item).parent and (
                      minor not in new or new[minor].limit_bytes)]
    held = data.draw(st.sets(st.sampled_from(leaves))
                     if leaves else st.just(set()))
    tree = steps.hold(new, old, held, settings)
    assert model.guaranteed_bps(tree) <= max(
        tree[minors.LINK].rate_bps,
        model.guaranteed_bps(new)) + 16 * len(tree)
    room_bps = tree[minors.LINK].rate_bps - model.kept_bps(tree) - sum(
        new[minor].rate_bps for minor in held if minor in new)
    for minor in held:
        assert tree[minor].rate_bps >= min(
            old[minor].rate_bps, settings.whole_rate_bps,
            room_bps / len(held)) - 8
    assert set(new) <= set(tree) <= set(new) | set(old)
    assert tree[minors.HOST] == new[minors.HOST]
    for item in tree.values():
        assert item.parent in tree or item.parent == minors.ROOT


def test_what_is_held_takes_from_the_others_in_proportion():
    """A leaf that leaves keeps a little; the rest share what is left."""
    settings = model.TreeSettings()
    old = built(coflow(0x10, 40e6, ()))
    new = built(coflow(0x20, 66e6, ()), coflow(0x30, 19e6, ()),
                coflow(0x40, 10e6, ()))
    assert model.guaranteed_bps(new) == LINK_BPS
    held = steps.hold(new, old, [0x10], settings)
    keeps_bps = held[0x10].rate_bps
    assert keeps_bps == pytest.approx(settings.whole_rate_bps, abs=8)
    factor = (LINK_BPS - 5e6 - keeps_bps) / 95e6
    for minor in (0x20, 0x30, 0x40):
        assert held[minor].rate_bps == pytest.approx(
            factor * new[minor].rate_bps, abs=8)
        assert held[minor].rate_bps % 8 == 0
    assert model.guaranteed_bps(held) == pytest.approx(LINK_BPS, abs=24)
    assert held[minors.HOST] == new[minors.HOST]


def test_a_class_gives_up_none_of_what_its_child_holds():
    settings = model.TreeSettings()
    old = built(coflow(0x10, 40e6, (1, 1)))
    new = built(coflow(0x10, 0.5e6, (1, 99)), coflow(0x20, 94.5e6, ()))
    held = steps.hold(new, old, [0x11], settings)
    keeps_bps = held[0x11].rate_bps
    assert keeps_bps == pytest.approx(settings.whole_rate_bps, abs=8)
    # Its class was raised to both children's rates, and so is over its own.
    raised_bps = keeps_bps + new[0x12].rate_bps
    factor = ((LINK_BPS - 5e6 - keeps_bps)
              / (raised_bps + new[0x20].rate_bps - keeps_bps))
    assert factor < 1
    assert held[0x10].rate_bps == pytest.approx(
        keeps_bps + factor * new[0x12].rate_bps, abs=16)
    assert held[0x12].rate_bps == pytest.approx(
        factor * new[0x12].rate_bps, abs=8)
    assert held[0x20].rate_bps == pytest.approx(
        factor * new[0x20].rate_bps, abs=8)


def test_what_is_held_and_fits_takes_from_nobody():
    old = built(coflow(0x10, 40e6, ()))
    new = built(coflow(0x20, 60e6, ()))
    held = steps.hold(new, old, [0x10], model.TreeSettings())
    assert held.pop(0x10).rate_bps > 1e6
    assert held == new
    assert steps.hold(new, old, [], model.TreeSettings()) == new


def test_leaves_are_lowered_first_and_the_link_last():
    old = built(coflow(0x10, 60e6, (2, 1)))
    new = shape.build_tree(made.policy([coflow(0x10, 6e6, (2, 1))],
                                  egress_bps=LINK_BPS / 2), LINK_BPS)
    lowered = [item.minor for item in steps.plan_update(old, new).lower]
    assert lowered[-1] == minors.LINK
    assert lowered.index(0x10) > max(map(lowered.index, (0x11, 0x12)))
    raised = [item.minor for item in steps.plan_update(new, old).rise]
    assert raised[0] == minors.LINK
    assert raised.index(0x10) < min(map(raised.index, (0x11, 0x12)))


def test_leaves_that_are_held_share_what_room_there_is():
    """95 Mbit/s are left for data, and one of them is given almost all."""
    settings = model.TreeSettings()
    old = built(coflow(0x10, 50e6, ()), coflow(0x20, 40e6, ()))
    new = built(coflow(0x10, 94.9e6, ()))
    held = steps.hold(new, old, [0x10, 0x20], settings)
    assert held[0x20].rate_bps == model.whole_bps(
        (95e6 - new[0x10].rate_bps) / 2) == 50_000
    assert held[0x10].rate_bps == new[0x10].rate_bps
    assert held[0x10].ceil_bps == new[0x10].ceil_bps
    # A leaf that may borrow less borrows as much as a super-packet asks for.
    slow = built(coflow(0x10, 1e6, (1,), 2e6))
    held = steps.hold(slow, old, [0x10], settings)
    assert held[0x10].ceil_bps == model.whole_bps(settings.whole_ceil_bps)


def test_a_parent_that_left_stays_idle_while_its_child_is_held():
    settings = model.TreeSettings()
    old = built(coflow(0x10, 40e6, (1, 1)))
    new = built()
    held = steps.hold(new, old, [0x11], settings)
    assert held.keys() == new.keys() | {0x10, 0x11}
    # It guarantees what its child keeps.
    assert held[0x10].rate_bps == held[0x11].rate_bps == model.whole_bps(
        settings.whole_rate_bps)
    assert held[0x11].ceil_bps == old[0x11].ceil_bps


def test_the_children_of_a_class_that_moves_leave_with_it():
    """Also where a leaf leaves besides."""
    before = built(coflow(0x10, 1e6), coflow(0x20, 1e6))
    after = built(coflow(0x10, 1e6))
    after[0x10] = dataclasses.replace(after[0x10], parent=minors.UNMANAGED)
    assert steps.plan_update(before, after).leave == (
        0x11, 0x21, 0x10, 0x20)


def test_a_class_whose_rate_stays_is_changed_with_those_that_rise():
    before = built(coflow(0x10, 1e6), coflow(0x20, 2e6))
    after = dict(before) | {
        0x11: dataclasses.replace(before[0x11], ceil_bps=8000),
        0x21: dataclasses.replace(before[0x21], rate_bps=8000)}
    assert steps.plan_update(before, after) == steps.Update(
        lower=(after[0x21],), rise=(after[0x11],))
