# SPDX-License-Identifier: Apache-2.0

"""Which typed operations the helper makes, and which it refuses."""

from hypothesis import given
import msgspec
import pytest

from edge_module.classify import classified as classify
from edge_module.privileged import guarded
from edge_module.privileged import operations
from edge_module.privileged import owned
from edge_module.tcplan import shape
from tests.unit.edge import test_tcplan

UPLINK, IFB, OTHER = 1, 50, 99
TREE = shape.build_tree(test_tcplan.policy([]), test_tcplan.LINK_BPS)
CLASS = next(iter(TREE.values()))
KEY = classify.Key('', '10.0.0.1', '10.0.0.2')


@pytest.fixture
def ours(monkeypatch):
    """``lo`` is the uplink; every root qdisc is of virtco."""
    monkeypatch.setattr(owned, '_ifb', lambda: IFB)
    monkeypatch.setattr(owned, 'has_our_root', lambda ifindex: True)
    return owned.Owned('lo')


@given(test_tcplan.policies())
def test_every_class_of_a_policy_passes_the_decoder(wanted):
    changes = [operations.AddRoot(UPLINK)]
    for item in shape.build_tree(wanted, 1e8, ports=[4]).values():
        changes += [operations.SetClass(UPLINK, item),
                    operations.SetLeaf(UPLINK, item),
                    operations.DeleteClass(UPLINK, item.minor)]
    decoded = guarded._TC.decode(msgspec.msgpack.encode(changes))
    assert decoded == changes
    assert [change.message() for change in decoded] == [
        change.message() for change in changes]


def test_changes_of_the_uplink_and_its_ifb_are_made(ours):
    ours.check_tc([
        operations.AddRoot(UPLINK), operations.SetClass(UPLINK, CLASS),
        operations.SetLeaf(IFB, CLASS), operations.DeleteClass(IFB, 1),
        operations.AddIfb(), operations.AddIngress(UPLINK),
        operations.Redirect(UPLINK, IFB), operations.MatchPair(IFB, KEY, 1),
        operations.DeletePair(IFB, 1, 1)])


@pytest.mark.parametrize('change', [
    operations.AddRoot(OTHER), operations.SetClass(OTHER, CLASS),
    operations.SetLeaf(OTHER, CLASS), operations.DeleteClass(OTHER, 1),
    operations.AddIngress(OTHER), operations.AddIngress(IFB),
    operations.Redirect(OTHER, IFB), operations.Redirect(UPLINK, OTHER),
    operations.Redirect(IFB, IFB), operations.MatchPair(OTHER, KEY, 1),
    operations.MatchPair(UPLINK, KEY, 1), operations.DeletePair(UPLINK, 1, 1),
], ids=str)
def test_changes_of_other_devices_are_refused(ours, change):
    with pytest.raises(owned.Refused):
        ours.check_tc([operations.AddIfb(), change])


@pytest.mark.parametrize('change', [
    operations.SetClass(UPLINK, CLASS), operations.SetLeaf(UPLINK, CLASS),
    operations.DeleteClass(UPLINK, 1), operations.MatchPair(IFB, KEY, 1),
    operations.DeletePair(IFB, 1, 1)], ids=str)
def test_a_tree_of_somebody_else_is_not_changed(ours, monkeypatch, change):
    monkeypatch.setattr(owned, 'has_our_root', lambda ifindex: False)
    with pytest.raises(owned.Refused, match='root qdisc'):
        ours.check_tc([change])


def test_lo_has_no_root_of_ours():
    assert not owned.has_our_root(UPLINK)
    assert not owned.has_our_root(2 ** 31 - 1)


@pytest.mark.parametrize('data', [
    [['DeleteRoot', 1]], [['AddRoot', 0]], [['AddRoot', 2 ** 31]],
    [['AddRoot', '1']], [['AddRoot', 1, b'\x08\0\x01\0bfifo\0']],
    [['DeleteClass', 1, 0x10000]], [['DeleteClass', 1]], [[16, 0, b'']],
    7, [['SetClass', 1, {'minor': 1}]]], ids=str)
def test_malformed_operations_are_refused(data):
    with pytest.raises(owned.Refused, match='tc_change'):
        guarded._tc_change(msgspec.msgpack.encode(data))
