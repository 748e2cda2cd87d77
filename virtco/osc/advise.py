# SPDX-License-Identifier: Apache-2.0

"""``group advise``: how the VMs of a group should communicate."""

from collections.abc import Iterator
import typing
from typing import Any

import msgspec
from osc_lib import exceptions as osc_exceptions
import rich.box
import rich.console
import rich.table

from virtco import exception
from virtco import units
from virtco.osc import command_base as base
from virtco.osc import launchers
from virtco.wire import group as wire

#: Arguments that take a size, of which a call has one at most.
SIZES = ('broadcast', 'reduce', 'all_reduce')
FORMATS = ('table', 'json', 'rankfile', 'nccl', 'torchrun')


class Advise(base.Command):
    """Show the fastest tree or the best ranks for the VMs of a group

    The time of a broadcast or reduce is that of one message in a tree at the
    measured rates and latencies, in the fastest segments. JSON has the edges
    of every tree. A rankfile orders the ranks for the fastest of Open MPI's
    own trees, and the options that choose it are on the standard error; nccl
    and torchrun order the ranks for NCCL's ring.

    The time of a rank of a matrix is the time of its VM's port to send or
    receive all of its bytes; for an all-reduce that of ring or double binary
    tree, whichever is slower.
    """

    example = 'train --all-reduce 100MB --format nccl'
    arguments = (
        base.GROUP,
        base.argument('--root', type=int, default=0, metavar='<row>',
                      help='Row of the VM that sends the broadcast or gets '
                           'the reduce (default 0)'),
        base.argument(
            '--matrix', choices=typing.get_args(wire.Basis),
            default='constant', help=(
                'Rates to use: the long-term ones by the estimator that '
                'predicts this cloud best (default), those by RPCA, '
                'medians, or the newest readings')),
        base.argument('--format', choices=FORMATS, default='table',
                      help='Table or JSON for reading, or the file of a '
                           'launcher (default table)'),
        base.argument(
            '--names', choices=launchers.NAMES, default='auto', help=(
                'Names of the VMs in files of hosts (default: name, if '
                'names are host names and unique, else address)')),
        base.argument(
            '--slots', default='0', metavar='<slots>',
            help='Cores of each rank in a rankfile, such as 0-7 (default 0)'),
        base.PROJECT,
        base.OneOf((
            base.argument('--broadcast', metavar='<n>',
                          help='Bytes of a message from the root to all, '
                               'such as 8MB'),
            base.argument('--reduce', metavar='<n>',
                          help='Bytes of a message from all to the root'),
            base.argument('--all-reduce', metavar='<n>',
                          help="Bytes of NCCL's all-reduce, by its ring and "
                               'by its double binary tree')),
            is_required=False),
        # In the group it would make a line of the usage too long.
        base.argument('--tm', help=base.MATRIX + ', row i of rank i '
                      '(default: the hint of the group)'))

    def _found(self, args: Any) -> wire.Tree | wire.Mapping:
        sizes_bytes = {name: _size_bytes(size, name) for name in SIZES
                       if (size := getattr(args, name)) is not None}
        if args.tm is not None and sizes_bytes:
            raise osc_exceptions.CommandError('Give --tm or a size, not both.')
        of_group = {'matrix': args.matrix, 'project_id': args.project_id}
        for operation in ('broadcast', 'reduce'):
            if operation in sizes_bytes:
                return self.client.call(
                    wire.TREE, args.group, root=args.root,
                    size_bytes=sizes_bytes[operation], operation=operation,
                    **of_group)
        return self.client.call(
            wire.MAPPING, args.group, **of_group,
            tm=None if args.tm is None else base.decode_json(
                '--tm', args.tm, self.text_of(args.tm)),
            all_reduce_bytes=sizes_bytes.get('all_reduce'))

    def take_action(self, args: Any) -> None:
        found = self._found(args)
        if args.format == 'table':
            console = rich.console.Console(file=self.app.stdout,
                                           highlight=False, markup=False)
            console.print(_headline(found))
            for title, table in (
                    _tree_tables(found) if isinstance(found, wire.Tree)
                    else _mapping_tables(found)):
                console.print(title, soft_wrap=True)
                console.print(table)
            console.print(_told(found), soft_wrap=True)
        elif args.format == 'json':
            self.write(msgspec.json.format(
                msgspec.json.encode(found)).decode())
        else:
            by_row = launchers.names(found.members, args.names)
            order, told = _order(found, args.format)
            hosts = [by_row[row] for row in order]
            if told:
                # A command to copy, whole.
                self.app.stderr.write(told + '\n')
            self.app.stdout.write(
                launchers.rankfile(hosts, args.slots)
                if args.format == 'rankfile' else
                getattr(launchers, args.format)(hosts))


def _headline(found: wire.Tree | wire.Mapping) -> str:
    size = units.format_size(found.size_bytes)
    group = f'group {found.group_name} of {len(found.members)} VMs'
    if isinstance(found, wire.Tree):
        way = 'to' if found.operation == 'reduce' else 'from'
        return (f'{found.operation.title()} of {size} {way} row '
                f'{found.root} in {group}')
    if found.operation == 'all_reduce':
        return f'NCCL\'s all-reduce of {size} in {group}'
    return f'{size} between the ranks of {group}'


def _tree_tables(found: wire.Tree) -> Iterator[tuple[str, rich.table.Table]]:
    """Yield the tables of a tree, each below its title."""
    yield '', _side_by_side(found, 'Tree')
    best = found.trees[0]
    edges = _table('From', 'To')
    for ends in best.edges:
        edges.add_row(*(_member(found, row) for row in ends))
    yield f'The tree {best.tree}{_cut(found, best)}', edges
    first = found.orders[0]
    yield (f'Ranks with which Open MPI\'s {first.shape} tree takes '
           f'{units.format_time(first.predicted_s)}: mpirun '
           + _mca(found, first)), _ranks(found)


def _mapping_tables(found: wire.Mapping
                    ) -> Iterator[tuple[str, rich.table.Table]]:
    """Yield the tables of a mapping, each below its title."""
    yield '', _side_by_side(found, 'Mapping')
    best = found.mappings[0]
    gap = ('' if best.gap is None else
           f', at most {best.gap:.0%} above the best possible')
    yield (f'The mapping {best.mapping}, '
           f'{units.format_time(best.predicted_s)}{gap}'), _ranks(found)


def _order(found: wire.Tree | wire.Mapping, how: str
           ) -> tuple[list[int], str]:
    """Return rows by rank for a launcher, and a note to its user."""
    if isinstance(found, wire.Mapping):
        return found.order, ''
    if how == 'rankfile':
        return found.order, 'mpirun ' + _mca(found, found.orders[0])
    return next(one.order for one in found.orders
                if one.shape == 'chain'), ''


def _mca(found: wire.Tree, order: wire.Order) -> str:
    return launchers.mca(found.operation, order.shape,
                         found.size_bytes, order.n_segments)


def _cut(found: wire.Tree, tree: wire.NamedTree) -> str:
    n = tree.n_segments
    return ('' if n == 1 else f', in {n} segments of '
            + units.format_size(found.size_bytes / n))


def _side_by_side(found: wire.Tree | wire.Mapping, first: str
                  ) -> rich.table.Table:
    """Make a table of predicted times by every estimate."""
    its = found.estimates
    chosen = next(one for one in its if one.matrix == found.matrix)
    table = _table(first, *(
        one.matrix + (' *' if one.matrix == found.matrix else '')
        for one in its))
    for name, _ in sorted(chosen.predicted_s.items(),
                          key=lambda item: item[1]):
        table.add_row(name, *(units.format_time(one.predicted_s[name])
                              for one in its))
    table.add_section()
    table.add_row('at least', *(units.format_time(one.bound_s)
                                for one in its))
    table.add_row('best, by *', *(units.format_time(one.as_chosen_s)
                                  for one in its))
    return table


def _ranks(found: wire.Tree | wire.Mapping) -> rich.table.Table:
    table = _table('Rank', 'VM')
    for rank, row in enumerate(found.order):
        table.add_row(str(rank), _member(found, row))
    return table


def _member(found: wire.Tree | wire.Mapping, row: int) -> str:
    member = found.members[row]
    shown = f'{row} {member.display_name or member.instance_uuid}'
    return shown + (f' on {member.host}' if member.host else '')


def _told(found: wire.Tree | wire.Mapping) -> str:
    """Tell how far the rates may be trusted."""
    chosen = next(one for one in found.estimates
                  if one.matrix == found.matrix)
    told = (f'{chosen.n_measured} of {chosen.n_pairs} pairs of '
            'hypervisors are measured; the others are taken for their links')
    if chosen.noise is not None:
        told = (f'Rates by {chosen.estimator}, Norm(N_E) '
                f'{chosen.noise:.2f}: {chosen.trust}. ' + told)
    return told + '.'


def _table(*heads: str) -> rich.table.Table:
    table = rich.table.Table(box=rich.box.ASCII2)
    for head in heads:
        table.add_column(head)
    return table


def _size_bytes(text: str, name: str) -> float:
    try:
        return units.parse_size_bytes(text)
    except units.NotAnAmount as error:
        raise exception.Invalid(field='--' + name.replace('_', '-'),
                                value=text, limit=error.limit) from error
