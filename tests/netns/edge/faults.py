# SPDX-License-Identifier: Apache-2.0

"""An update that dies between two of its steps."""

from tests.netns.edge import policies

LINK_BPS = 40e6
# In the order in which they are made; tests.enforcers names them.
STEPS = ('root', 'lower', 'rise', 'classify', 'delete')


class Killed(BaseException):
    """The module dies here."""


def before(a, b, c):
    """a and c, each with a coflow to b, and another one of a."""
    return policies.PolicyBuilder('h1', LINK_BPS).coflow(
        'C1', 20e6, [(a, b, 1)]).coflow('C4', 1e6, [(a, b, 1)]).coflow(
            'C2', 10e6, [(c, b, 1)]).build()


def after(a, b, c):
    """C2 leaves, C1 shrinks, C4 grows, C3 comes with C2's sender."""
    builder = policies.PolicyBuilder('h1', LINK_BPS, 2).coflow(
        'C1', 5e6, [(a, b, 1)]).coflow('C4', 2e6, [(a, b, 1)])
    builder.minor = 0x20
    return builder.coflow('C3', 25e6, [(c, b, 1)]).build()


def kill_at(edge, name):
    """Have an enforcer die in front of a step."""
    def step(reached):
        if reached == name:
            raise Killed

    edge.enforcer.step = step
