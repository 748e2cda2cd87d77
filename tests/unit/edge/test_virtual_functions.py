# SPDX-License-Identifier: Apache-2.0

"""Rates at a card that holds them as devlink shows them."""

import errno
import os

import pytest

from edge_module import virtual_functions
from edge_module.classify import classified as classify
from edge_module.qdisc import devlink
from edge_module.tcplan import shape
from edge_module.tcplan import vf_rates
from tests.unit.edge import test_devlink
from tests.unit.edge import test_tcplan
from virtco import exception

LINK_BPS = 1e9
TREE = shape.build_tree(test_tcplan.policy(
    [test_tcplan.coflow(0x10, 200e6, ceil_bps=300e6)], 20e6, LINK_BPS),
    LINK_BPS)
ENTRIES = {classify.Entry(ifindex, '10.0.0.1', '10.0.0.2'): 0x11
           for ifindex in (3, 4)}
ONE, TWO = (vf_rates.Name('pci', '0000:03:00.0', port) for port in (1, 2))
GROUP = vf_rates.Name('pci', '0000:03:00.0', None, 0x10)
RATE = vf_rates.Rate(100, 345, 0x10)


class Kernel:
    """A card with functions at the ports 3 and 4.

    :ivar refuses: names whose changes it refuses.
    :ivar asked: commands of dumps, and whether there was a change.
    """

    def __init__(self):
        self.rates = {ONE: vf_rates.Rate(), TWO: vf_rates.Rate()}
        self.functions = {3: ONE, 4: TWO}
        self.refuses, self.asked, self.errno = set(), [], None

    def tc_dump(self, message):
        if self.errno is not None:
            raise OSError(self.errno, 'told to')
        kind, flags, body = message
        assert (kind, flags, body[1:]) == (devlink.KIND, 0, b'\1\0\0')
        self.asked.append(body[0])
        if body[0] == devlink.PORT_GET:
            return [test_devlink.port(name, ifindex) for ifindex, name
                    in self.functions.items()]
        return [test_devlink.rate(*one) for one in self.rates.items()]

    def tc_change(self, changes):
        self.asked.append('change')
        failed = []
        for what, name, share, most, group in (
                change.step for change in changes):
            if name in self.refuses:
                failed.append(errno.EOPNOTSUPP)
            elif what == 'delete':
                del self.rates[name]
            else:
                before = self.rates.get(name, vf_rates.Rate())
                self.rates[name] = vf_rates.Rate(*(
                    old if new is None else new for old, new
                    in zip(before, (share, most, group))))
        return failed


@pytest.fixture
def kernel():
    return Kernel()


@pytest.fixture
def functions(kernel):
    return virtual_functions.VirtualFunctions(kernel)


def ensure(functions, ports=(3, 4), tree=lambda: TREE):
    functions.ensure(tree, None, ENTRIES, at(ports))


def at(ports):
    return [classify.VmPort('v1', f'tap{port}', port) for port in ports]


def test_the_card_has_the_rates_of_the_policy(kernel, functions):
    ensure(functions)
    assert kernel.rates == {ONE: RATE, TWO: RATE,
                            GROUP: vf_rates.Rate(200, 345)}
    assert functions.notes == {}
    # Nothing is read or changed again without a cause.
    asked = len(kernel.asked)
    ensure(functions)
    ensure(functions, ports=(3,))
    assert kernel.asked[asked:] == ['change', devlink.RATE_GET]
    assert kernel.rates == {ONE: RATE, TWO: vf_rates.Rate(), GROUP:
                            vf_rates.Rate(100, 345)}


def test_what_others_change_is_set_again_after_forget(kernel, functions):
    ensure(functions)
    kernel.rates[ONE] = RATE._replace(most_mbps=7)
    ensure(functions)
    assert kernel.rates[ONE].most_mbps == 7
    functions.forget()
    ensure(functions)
    assert kernel.rates[ONE] == RATE


def test_functions_are_read_when_a_port_comes(kernel, functions):
    ensure(functions, ports=())
    del kernel.asked[:]
    ensure(functions, ports=(3,))
    assert kernel.asked == [devlink.PORT_GET, devlink.RATE_GET, 'change',
                            devlink.RATE_GET]
    assert kernel.rates[ONE] == RATE and not any(kernel.rates[TWO])


@pytest.mark.parametrize('rate, note', [
    (vf_rates.Rate(0, 50), virtual_functions.OTHERS),
    (None, virtual_functions.NO_RATE)])
def test_a_port_says_why_it_has_no_rate(kernel, functions, rate, note):
    kernel.rates = {ONE: vf_rates.Rate(), **({} if rate is None
                                             else {TWO: rate})}
    ensure(functions)
    assert functions.notes == {4: note}
    assert kernel.rates.get(TWO) == rate and kernel.rates[ONE] == RATE
    kernel.rates[TWO] = vf_rates.Rate()
    functions.forget()
    ensure(functions)
    assert functions.notes == {} and kernel.rates[TWO] == RATE


def test_a_refusal_is_a_note_of_its_port(kernel, functions):
    kernel.refuses = {TWO}
    ensure(functions)
    assert functions.notes == {
        4: f'{virtual_functions.REFUSED} ({os.strerror(errno.EOPNOTSUPP)})'}
    assert kernel.rates[ONE] == RATE
    # The next change of the policy tries again.
    kernel.refuses = set()
    ensure(functions)
    assert functions.notes == {} and kernel.rates[TWO] == RATE


def test_another_programs_group_is_not_virtcos(kernel, functions):
    kernel.rates[GROUP._replace(group=vf_rates.OTHERS)] = vf_rates.Rate(1, 2)
    before = dict(kernel.rates)
    ensure(functions, ports=())
    assert not functions.remove() and kernel.rates == before


def test_without_functions_no_tree_is_built(kernel, functions):
    def refuse():
        raise AssertionError

    ensure(functions, ports=(7,), tree=refuse)
    assert not any(map(any, kernel.rates.values()))
    kernel.functions = {}
    functions.forget()
    ensure(functions, tree=refuse)


def test_a_kernel_without_devlink_has_no_functions(kernel, functions):
    kernel.errno = errno.ENOENT
    ensure(functions)
    assert functions.notes == {} and not functions.remove()
    kernel.errno = errno.EPERM
    functions.forget()
    with pytest.raises(PermissionError):
        ensure(functions)


def test_all_of_it_goes(kernel, functions):
    kernel.rates[TWO] = vf_rates.Rate(0, 50)
    ensure(functions)
    assert virtual_functions.VirtualFunctions(kernel).remove()
    assert kernel.rates == {ONE: vf_rates.Rate(), TWO: vf_rates.Rate(0, 50)}
    assert not functions.remove()


def test_what_cannot_be_taken_back_is_an_error(kernel, functions):
    ensure(functions)
    kernel.refuses = {ONE}
    with pytest.raises(exception.KernelRefused, match='take back'):
        functions.remove()


def test_plan_changes_nothing(kernel, functions):
    wanted, steps = functions.plan(lambda: TREE, None, ENTRIES, at((3, 4)))
    assert wanted[ONE] == RATE and len(steps) == 5
    assert not any(map(any, kernel.rates.values()))
