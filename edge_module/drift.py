# SPDX-License-Identifier: Apache-2.0

"""How the kernel differs from what it should hold. Changes nothing."""

from collections.abc import Iterator
import dataclasses

from edge_module.classify import base as classify
from edge_module.tcplan import model
from edge_module.tcplan import steps


@dataclasses.dataclass(frozen=True, slots=True)
class Drift:
    """A line per difference."""

    classes: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()
    conflict: str | None = None

    def __bool__(self) -> bool:
        return bool(self.classes or self.entries or self.conflict)


def between(tree: model.Tree, wanted_tree: model.Tree,
            table: classify.Table, wanted_table: classify.Table) -> Drift:
    """What stands, each time, and what should."""
    return Drift(tuple(_classes(tree, wanted_tree)),
                 tuple(_entries(table, wanted_table)))


def _classes(have: model.Tree, want: model.Tree) -> Iterator[str]:
    update = steps.plan_update(have, want)
    created = {item.minor for item in update.create}
    for item in update.create:
        yield f'missing class {item.minor:#x}'
    for item in update.lower + update.raise_:
        if item.minor not in created:
            yield f'class {item.minor:#x} should be {item}'
    for minor in update.leave:
        yield f'surplus class {minor:#x}'


def _entries(have: classify.Table, want: classify.Table) -> Iterator[str]:
    for dev, _ in sorted(want.hooks - have.hooks):
        yield f'port {dev} is not classified'
    for dev, _ in sorted(have.hooks - want.hooks):
        yield f'port {dev} is classified without need'
    for key in sorted({*have.entries, *want.entries}):
        if have.entries.get(key) != want.entries.get(key):
            yield (f'{key}: {have.entries.get(key)} instead of '
                   f'{want.entries.get(key)}')
    for minor in sorted({*have.control, *want.control}):
        if have.control.get(minor) != want.control.get(minor):
            yield (f'control packets of class {minor:#x}: '
                   f'{have.control.get(minor)} instead of '
                   f'{want.control.get(minor)}')
    for mine, other in ((have.limits, want.limits),
                        (have.others, want.others)):
        for key in sorted({*mine, *other}):
            if mine.get(key) != other.get(key):
                yield f'what {key} sends unmanaged is in another class'
