# SPDX-License-Identifier: Apache-2.0

"""From the tree in the kernel to the one that is wanted. Pure."""

from collections.abc import Mapping
import dataclasses

from edge_module.tcplan import minors
from edge_module.tcplan import model


@dataclasses.dataclass(frozen=True, slots=True)
class Update:
    """Steps in the order in which they are sent to the kernel.

    ``leave`` lists classes that nothing is sent to any more once the
    classification is replaced; they are deleted after a grace period,
    children first.
    """

    create: tuple[model.HtbClass, ...] = ()
    lower: tuple[model.HtbClass, ...] = ()
    raise_: tuple[model.HtbClass, ...] = ()
    leave: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.create or self.lower or self.raise_)


def _all_fit(current: Mapping[int, model.HtbClass],
             desired: Mapping[int, model.HtbClass]) -> bool:
    """Whether all that is missing may get its rate beside what stands."""
    return model.guaranteed_bps({**desired, **current}) <= max(
        model.guaranteed_bps(current), model.guaranteed_bps(desired))


def _depth(tree: Mapping[int, model.HtbClass], minor: int) -> int:
    depth = 0
    while minor in tree and depth < 8:
        minor = tree[minor].parent
        depth += 1
    return depth


def _leaving(current: Mapping[int, model.HtbClass],
             desired: Mapping[int, model.HtbClass]) -> set[int]:
    leaving = {minor for minor, have in current.items()
               if minor not in desired
               or desired[minor].parent != have.parent}
    if any(current[minor].limit_bytes is None for minor in leaving):
        for minor in sorted(current, key=lambda key: _depth(current, key)):
            if current[minor].parent in leaving:
                leaving.add(minor)
    return leaving


def plan_update(current: Mapping[int, model.HtbClass],
                desired: Mapping[int, model.HtbClass]) -> Update:
    """Steps from the kernel's tree to the desired one.

    A new class starts idle where its rate would over-commit the link in front
    of ``raise_``. What stands without a policy never does: it carries traffic
    from the first moment, as all classes may when the tree was lost. One that
    leaves keeps its place, idle and last, until nothing can be sent to it any
    more. A class that stands under another parent cannot be moved: it leaves
    with all below it, and the next update creates them.
    """
    leaving = _leaving(current, desired)
    fits = _all_fit(current, desired)
    create: list[model.HtbClass] = []
    lower: list[model.HtbClass] = []
    raise_: list[model.HtbClass] = []
    for minor in sorted(desired, key=lambda key: (_depth(desired, key), key)):
        wanted = desired[minor]
        have = current.get(minor)
        if have is None and (fits or minor in minors.RESERVED):
            create.append(wanted)
        elif have is None:
            create.append(dataclasses.replace(
                wanted, rate_bps=min(wanted.rate_bps, model.IDLE_RATE_BPS)))
            raise_.append(wanted)
        elif minor not in leaving and not wanted.stands_as(have):
            (lower if wanted.rate_bps < have.rate_bps else raise_).append(
                wanted)
    # Leaves first, the link last: what is guaranteed never exceeds it.
    lower.reverse()
    for minor in sorted(leaving):
        idle = dataclasses.replace(
            current[minor], rate_bps=model.IDLE_RATE_BPS,
            prio=model.LOWEST_PRIO)
        if idle != current[minor]:
            lower.append(idle)
    return Update(tuple(create), tuple(lower), tuple(raise_), tuple(sorted(
        leaving, key=lambda key: (-_depth(current, key), key))))
