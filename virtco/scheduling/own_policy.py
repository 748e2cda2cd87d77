# SPDX-License-Identifier: Apache-2.0

"""Policies of one's own: facts that they are told, and their answers. Pure.

A policy is an object with a method ``order``, and perhaps one ``rates``. It
may be asked at any time, and keeps nothing that it could not do without.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import itertools
import traceback
from typing import Any
from typing import NamedTuple
from typing import Protocol

import numpy as np

from virtco import exception
from virtco import units
from virtco.scheduling import fabric as fabric_model


class Unfinished(NamedTuple):
    """Coflow with bytes left.

    Ports are those of the hosts for sending, for receiving, then the uplinks.

    :ivar number: number of the coflow among all.
    :ivar arrival_s: time of its arrival.
    :ivar weight: cost of a second of its completion time.
    :ivar sent_bytes: bytes that it has sent.
    :ivar left_bytes: bytes that it has left between hosts.
    :ivar n_flows: pairs of hosts between which it has bytes left.
    :ivar alone_s: time that it has left alone on the fabric: t of VirtCO
        Eq. (3).
    :ivar busy_s: time for which it keeps each port busy, shape (P,).
    """

    number: int
    arrival_s: float
    weight: float
    sent_bytes: float
    left_bytes: float
    n_flows: int
    alone_s: float
    busy_s: np.ndarray


class Policy(Protocol):
    """Policy of one's own.

    A method ``rates`` is optional. It takes the coflows as ``order`` does,
    and returns the share of its speed alone that each has in any case. The
    order divides what these leave, or them where they do not fit.
    """

    def order(self, coflows: Sequence[Unfinished]) -> Iterable[Unfinished]:
        """Return the coflows, the first to be served first."""


def checked(policy: Policy) -> Policy:
    """Return the policy.

    :raises virtco.exception.Invalid: for an object without a method ``order``.
    """
    for method in ('order', 'rates'):
        found = getattr(policy, method, None)
        if not (callable(found) or method == 'rates' and found is None):
            raise exception.Invalid(
                field=type(policy).__name__, value=found,
                limit=f'a class with a method {method}')
    return policy


def unfinished(fabric: fabric_model.Fabric, numbers: Iterable[int],
               arrival_s: np.ndarray, weight: np.ndarray,
               sent_bytes: np.ndarray) -> list[Unfinished]:
    """Describe coflows of a fabric, by arrival and then by number.

    So a stable sort by a policy leaves equal ones in the order of ties.

    :param numbers: the coflows.
    :param arrival_s: arrival of each coflow, shape (C,), as all that follow.
    """
    found = []
    for c in sorted(numbers, key=lambda c: (arrival_s[c], c)):
        first, split = fabric.entry_ptr[c], fabric.split[c]
        left_bits = fabric.load[first:split].sum() * fabric.scale[c]
        busy_s = fabric.busy_s(c)
        found.append(Unfinished(
            c, float(arrival_s[c]), float(weight[c]), float(sent_bytes[c]),
            float(left_bits) / units.BITS_PER_BYTE,
            int(fabric.alive[first:split].sum()),
            float(busy_s.max(initial=0.0)), busy_s))
    return found


def places(policy: Policy, coflows: Sequence[Unfinished], n_coflows: int
           ) -> np.ndarray:
    """Return the place of each coflow in the order, shape (C,).

    :raises virtco.exception.Invalid: see :func:`ordered`.
    """
    found = np.zeros(n_coflows)
    found[[coflow.number for coflow in ordered(policy, coflows)]] = np.arange(
        len(coflows))
    return found


def ordered(policy: Policy, coflows: Sequence[Unfinished]
            ) -> list[Unfinished]:
    """Return the coflows in the policy's order.

    :raises virtco.exception.Invalid: unless it has each of them once.
    """
    by_number = {coflow.number: coflow for coflow in coflows}
    numbers = _answer(policy, 'order', coflows, lambda coflow: coflow.number)
    if sorted(numbers) != sorted(by_number):
        raise exception.Invalid(
            field=f'order of {type(policy).__name__}', value=numbers,
            limit=f'each of the {len(coflows)} coflows once')
    return [by_number[number] for number in numbers]


def floors(policy: Policy, coflows: Sequence[Unfinished], n_coflows: int
           ) -> np.ndarray:
    """Return guaranteed paces, as shares of the remaining bytes per second.

    :raises virtco.exception.Invalid: see :func:`shares`.
    """
    found = np.zeros(n_coflows)
    for coflow, share in zip(coflows, shares(policy, coflows)):
        if coflow.alone_s > 0:
            found[coflow.number] = share / coflow.alone_s
    return found


def shares(policy: Policy, coflows: Sequence[Unfinished]) -> list[float]:
    """Return the share of its speed alone that each coflow has in any case.

    :raises virtco.exception.Invalid: unless there is one from 0 to 1 for each.
    """
    if getattr(policy, 'rates', None) is None:
        return [0.0] * len(coflows)
    found = _answer(policy, 'rates', coflows, float)
    if len(found) != len(coflows) or not all(
            0 <= share <= 1 for share in found):
        raise exception.Invalid(
            field=f'rates of {type(policy).__name__}', value=found,
            limit=f'{len(coflows)} shares from 0 to 1')
    return found


def _answer(policy: Policy, method: str, coflows: Sequence[Unfinished],
            read: Callable[[Any], Any]) -> list[Any]:
    """Ask a policy, which may change the list that it is given.

    :param read: converts each item of the answer.
    :returns: at most one item more than there are coflows.
    :raises virtco.exception.Invalid: where the method or the conversion fails.
    """
    try:
        return [read(item) for item in itertools.islice(
            getattr(policy, method)(list(coflows)), len(coflows) + 1)]
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        raise exception.Invalid(
            field=f'{method} of {type(policy).__name__}',
            value=f'{error!r} ({at.filename}, line {at.lineno})',
            limit=f'an answer for {len(coflows)} coflows') from error
