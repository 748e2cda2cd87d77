# SPDX-License-Identifier: Apache-2.0

"""The commands ``virtco hint …``."""

import abc
import argparse
from collections.abc import Iterator
import dataclasses
import inspect
import json
import shlex
from typing import Any

import msgspec

from virtco import exception
from virtco import hint_matrix
from virtco import hint_patterns
from virtco import hints
from virtco import ring_and_tree
from virtco.client import projects
from virtco.model import coflow as coflow_model
from virtco.wire import profile as wire
from virtco_tenant.hintkit import aicb
from virtco_tenant.hintkit import collectives
from virtco_tenant.hintkit import figures
from virtco_tenant.hintkit import inputs
from virtco_tenant.hintkit import made
from virtco_tenant.hintkit import mpi
from virtco_tenant.hintkit import screen
from virtco_tenant.hintkit import spark
from virtco_tenant.hintkit import whatif

MAX_VMS = 100_000


class _Command(abc.ABC):
    """A command of ``virtco-hint``, and of ``virtco`` as cliff calls it.

    :param app: has ``stdout`` and ``client_manager``.
    :ivar example: arguments of a call, shown at the end of the help.
    """

    deprecated = False
    example: str

    def __init__(self, app: Any, app_args: Any = None):
        self.app = app

    def get_description(self) -> str:
        return inspect.getdoc(self) or ''

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        return argparse.ArgumentParser(
            prog=prog_name, description=self.get_description(),
            epilog=f'Example:\n  {prog_name} {self.example}',
            formatter_class=argparse.RawDescriptionHelpFormatter)

    @abc.abstractmethod
    def take_action(self, args: Any) -> None:
        """Run with these arguments.

        :raises virtco.exception.VirtcoException: in one line, why not.
        """

    def run(self, args: Any) -> int:
        self.take_action(args)
        return 0


class _Hint(_Command):
    """Base of the commands that make a hint, check it and show it."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--name', default='coflow', metavar='<name>',
                            help='Value of virtco:coflow, default coflow')
        parser.add_argument('--vms', metavar='<n>',
                            help='Number of servers that will be created; '
                                 'warns if the matrix has more or fewer rows')
        parser.add_argument('--rate', default='1Gbit', metavar='<rate>',
                            help='Rate of each VM, for the time of the '
                                 'transfer alone')
        parser.add_argument('--all', action='store_true',
                            help='Show the sums of all VMs')
        parser.add_argument('--output', metavar='<file>',
                            help='File for the text of virtco:tm')
        parser.add_argument('--format', default='text',
                            choices=['text', 'json', 'tm', 'options'],
                            help='text: all values for reading; json: all '
                                 'values for a program; tm: only the value '
                                 'of virtco:tm; options: only the options of '
                                 'openstack server create')
        parser.add_argument('--controller', metavar='<url>',
                            help='Ask this controller for the placement and '
                                 'its time')
        parser.add_argument('--slots', default='8', metavar='<n>',
                            help='VMs that each host has room for, for '
                                 '--controller; default 8')
        return parser

    @abc.abstractmethod
    def hint(self, args: Any) -> tuple[figures.Figures, tuple[str, ...],
                                       str | None]:
        """Return the hint, the assumptions, and the file of its text."""

    def take_action(self, args: Any) -> None:
        bounds = hint_matrix.Limits()
        slots = inputs.count(inputs.OPTIONS, '--slots', args.slots, 1, MAX_VMS)
        vms = None if args.vms is None else inputs.count(
            inputs.OPTIONS, '--vms', args.vms, 1, MAX_VMS)
        rate_bps = inputs.rate_bps(inputs.OPTIONS, '--rate', args.rate)
        found, assumptions, file = self.hint(args)
        if args.output is not None:
            inputs.write_text(args.output, found.text)
            file = args.output
        plan, asked = None, ''
        if args.controller and found.hint.coflows:
            plan, asked = whatif.ask(
                self.app.client_manager.at(args.controller), found, slots)
        if args.format == 'text':
            text = '\n\n'.join(filter(None, (screen.report(
                found, bounds=bounds, n_vms=vms, rate_bps=rate_bps,
                assumptions=assumptions, all_vms=args.all, file=file),
                asked)))
        elif args.format == 'json':
            text = json.dumps(_facts(found, assumptions, vms, bounds)
                              | {'what_if': msgspec.to_builtins(plan)},
                              indent=1)
        elif args.format == 'tm':
            text = found.text
        else:
            text = ' '.join(screen.options(found, file))
        self.app.stdout.write(text + '\n')


def _facts(found: figures.Figures, assumptions: tuple[str, ...],
           n_vms: int | None, bounds: hint_matrix.Limits) -> dict[str, Any]:
    return {
        'hints': hints.encode(found.hint) | (
            {hints.TM: found.text} if found.text else {}),
        'n_vms': len(found.vms), 'n_flows': found.n_flows,
        'size_bytes': found.size_bytes,
        'coflows': [{
            'name': c.name, 'n_flows': len(c.flows),
            'size_bytes': c.size_bytes, 'dst_port': c.dst_port,
            'iterations': c.iterations, 'period_s': c.period_s,
            'compute_s': c.compute_s, 'order': c.order,
            'rank_hint': c.rank_hint}
            for c in found.hint.coflows],
        'vms': [{'row': vm.vm, 'out_bytes': vm.out_bytes,
                 'in_bytes': vm.in_bytes, 'n_to': vm.n_to,
                 'n_from': vm.n_from} for vm in found.vms],
        'limits': [{'limit': name, 'used': used, 'at_most': most}
                   for name, used, most in figures.limits(found, bounds)],
        'assumptions': list(assumptions),
        'warnings': figures.warnings(found, n_vms)}


def figures_of(values: dict[str, Any]) -> figures.Figures:
    """Parse as the controller does, with its default limits.

    :raises virtco.exception.HintInvalid:
    """
    hint = hints.parse(values)
    assert hint is not None  # there is a key of the product
    text = ''
    if hint.coflows:
        text = min(made.compact(json.loads(hints.text_of_matrix(values))),
                   hints.encode(hint)[hints.TM], key=len)
    return figures.Figures(hint, text, figures.sums(hint.coflows))


def _located(values: dict[str, Any], file: str | None) -> figures.Figures:
    """Return the figures of a given hint; an error names its file."""
    try:
        found = figures_of(values)
        return dataclasses.replace(found, bare_bytes=tuple(sorted(set(
            _bare_sizes(json.loads(hints.text_of_matrix(values)))
            if found.hint.coflows else ()))))
    except exception.HintInvalid as error:
        if file is None:
            raise
        raise exception.InputInvalid(where=file, **error.kwargs) from error


def _bare_sizes(given: Any) -> Iterator[float]:
    """Yield the sizes of a valid matrix that have no unit."""
    if isinstance(given, dict):
        sizes = [given.get('size'), given.get('flow_size'),
                 *(flow[2] for flow in given.get('flows', ()))]
        yield from filter(_is_bare, sizes)
        yield from _bare_sizes(given.get('tm', ()))
    else:
        for one in given:
            if isinstance(one, list | dict):
                yield from _bare_sizes(one)
            elif _is_bare(one):
                yield one


def _is_bare(size: Any) -> bool:
    return isinstance(size, int | float) and size > 0


def _given(text_or_file: str, name: str
           ) -> tuple[figures.Figures, str | None]:
    """Read a hint from text or a file; return figures and matrix's file."""
    text, file = inputs.text_of(text_or_file,
                                hint_matrix.Limits().max_text_bytes)
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None  # Its error is that of the controller, below.
    if isinstance(values, dict) and any(
            key.startswith(hints.PREFIX) for key in values):
        found = {key: value if isinstance(value, (str, int))
                 else json.dumps(value) for key, value in values.items()}
        return _located(found, file), None
    return _located({hints.COFLOW: name, hints.TM: text}, file), file


class Check(_Hint):
    """Check a hint, and show its contents

    FILE or TEXT is a matrix as in virtco:tm, or a JSON object with the keys
    virtco:coflow, virtco:tm, ...
    """

    example = 'matrix.json --vms 4 --format options'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('hint', metavar='<file-or-text>',
                            help='File (- is standard input), or JSON text')
        return parser

    def hint(self, args: Any) -> tuple[figures.Figures, tuple[str, ...],
                                       str | None]:
        """Return the hint of the argument, and the file that it came from."""
        found, file = _given(args.hint, args.name)
        return found, (), file


class Metadata(_Command):
    """Write a hint as server metadata, in pieces that Nova takes

    FILE or TEXT is as for "virtco hint check".
    """

    example = 'matrix.json --name wordcount'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('hint', metavar='<file-or-text>',
                            help='File (- is standard input), or JSON text')
        parser.add_argument('--name', default='coflow', metavar='<name>',
                            help='Value of virtco:coflow, default coflow')
        parser.add_argument('--format', default='options',
                            choices=['options', 'json'],
                            help='options: for openstack server create; '
                                 'json: an object, as the API takes it')
        return parser

    def take_action(self, args: Any) -> None:
        found, _file = _given(args.hint, args.name)
        values = hints.encode_metadata(found.hint, found.text)
        self.app.stdout.write((
            json.dumps(values, indent=1) if args.format == 'json'
            else ' '.join(f'--property {shlex.quote(f"{key}={value}")}'
                          for key, value in values.items())) + '\n')


class _Maker(_Hint):
    """Makes a matrix, which may recur."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--iterations', metavar='<n>',
                            help='Number of times that the matrix is sent; 0 '
                                 'is without end')
        for name, meaning in (
                ('period', 'From the start of one iteration to the next'),
                ('compute', 'Part of it in which nothing is sent')):
            parser.add_argument(f'--{name}', metavar='<time>',
                                help=f'{meaning}, such as 800ms')
        parser.add_argument('--order', choices=coflow_model.ORDERS,
                            help='Order in which the coflow is served; '
                                 'default intensity with --compute, else '
                                 'mrtf')
        parser.add_argument('--rank-hint', action='store_true',
                            help='Ask for an order of ranks')
        parser.add_argument(
            '--rank-order', metavar='<row,row,...>',
            help='Row of each rank, as virtco group advise prints it')
        return parser

    @abc.abstractmethod
    def make(self, args: Any) -> made.Made:
        """Make the matrix, with its assumptions and time of computing."""

    def hint(self, args: Any) -> tuple[figures.Figures, tuple[str, ...],
                                       str | None]:
        found = self.make(args)
        compute = args.compute
        if (compute is None and found.compute_s
                and args.iterations not in (None, '1')):
            compute = f'{found.compute_s * 1e3:.6g}ms'
        extra: dict[str, Any] = {
            name: value for name, value in (
                ('period', args.period), ('compute', compute),
                ('order', args.order))
            if value is not None}
        if args.iterations is not None:
            extra['iterations'] = inputs.count(
                inputs.OPTIONS, '--iterations', args.iterations, 0,
                hint_matrix.MAX_ITERATIONS)
        if args.rank_order is not None:
            extra['rank_hint'] = [
                inputs.count(inputs.OPTIONS, '--rank-order', row.strip(), 0,
                             hint_matrix.Limits().max_vms - 1)
                for row in args.rank_order.split(',')]
        elif args.rank_hint:
            extra['rank_hint'] = True
        matrix: Any = found.matrix
        if extra:
            matrix = [{'name': args.name, **extra, 'tm': matrix}]
        return figures_of({hints.COFLOW: args.name,
                           hints.TM: made.compact(matrix)}
                          ), found.assumptions, None


def _number(args: Any, option: str, most: int) -> int:
    value = getattr(args, option.replace('-', '_'))
    return inputs.count(inputs.OPTIONS, f'--{option}', value, 1, most)


class FromPattern(_Maker):
    """Make a hint from a named pattern"""

    example = 'all-to-all --n 8 --size 19GB'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        shapes = sorted(hint_patterns.SHAPES)
        parser.add_argument('pattern', choices=shapes, metavar='<pattern>',
                            help=f'One of {", ".join(shapes)}')
        for name in ('n', 'senders', 'receivers'):
            parser.add_argument(f'--{name}', metavar='<n>',
                                help='As in the hint; see the user guide')
        parser.add_argument('--size', metavar='<size>',
                            help='Sum of all flows, such as 19GB')
        parser.add_argument('--flow-size', metavar='<size>',
                            help='Size of every flow, instead of --size')
        parser.add_argument('--skew', type=float, metavar='<exponent>',
                            help='Exponent of the sizes, as in the hint')
        return parser

    def make(self, args: Any) -> made.Made:
        counts = {name: _number(args, name, MAX_VMS)
                  for name in ('n', 'senders', 'receivers')
                  if getattr(args, name) is not None}
        others = {name: getattr(args, name)
                  for name in ('size', 'flow_size', 'skew')
                  if getattr(args, name) is not None}
        return made.Made({'pattern': args.pattern, **counts, **others})


class FromMpi(_Maker):
    """Make a hint from a matrix of bytes between MPI ranks"""

    example = 'matrix.csv --ranks-per-vm 4'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('file', help='Text or CSV; - is standard input')
        parser.add_argument('--triples', action='store_true',
                            help='Lines are sender, receiver, bytes')
        parser.add_argument('--ranks-per-vm', default='1', metavar='<n>',
                            help='Ranks on each VM, default 1')
        parser.add_argument('--cyclic', action='store_true',
                            help='Ranks are dealt to the VMs in turn (map-by '
                                 'node)')
        return parser

    def make(self, args: Any) -> made.Made:
        return mpi.convert(args.file, args.triples,
                           _number(args, 'ranks-per-vm', mpi.MAX_RANKS),
                           args.cyclic)


class FromSpark(_Maker):
    """Make a hint from the event log of a Spark application"""

    example = 'app-20260101120000-0001.gz --stage 2'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('file', nargs='+',
                            help='Event log, plain or .gz; several of a '
                                 'rolling log')
        parser.add_argument('--by', choices=['host', 'executor'],
                            default='host', help=(
                                'Unit of the log that is a VM'))
        parser.add_argument('--stage', action='append', default=[],
                            metavar='<id>',
                            help='Only the shuffle that this stage reads; '
                                 'may be repeated')
        return parser

    def make(self, args: Any) -> made.Made:
        return spark.convert(args.file, args.by, [
            inputs.count(inputs.OPTIONS, '--stage', stage, 0, 10 ** 9)
            for stage in args.stage])


class _Collective(_Maker):
    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--world-size', required=True, metavar='<n>',
                            help='Ranks, one for each GPU')
        parser.add_argument('--gpus-per-vm', default='1', metavar='<n>',
                            help='GPUs of each VM, default 1')
        parser.add_argument('--algorithm', choices=['ring', 'tree'],
                            default='ring',
                            help='Algorithm of NCCL, default ring')
        return parser

    def ranks(self, args: Any) -> tuple[int, int]:
        return (_number(args, 'world-size', collectives.MAX_RANKS),
                _number(args, 'gpus-per-vm', collectives.MAX_RANKS))


class FromNccl(_Collective):
    """Make a hint from a collective of NCCL"""

    example = 'all_reduce --bytes 100MB --world-size 32 --gpus-per-vm 8'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        kinds = sorted(ring_and_tree.RING)
        parser.add_argument('collective', choices=kinds,
                            metavar='<collective>',
                            help=f'One of {", ".join(kinds)}')
        parser.add_argument('--bytes', required=True, metavar='<size>',
                            help='Size of the buffer in one iteration, as '
                                 'nccl-tests counts it')
        return parser

    def make(self, args: Any) -> made.Made:
        size = inputs.size_bytes(inputs.OPTIONS, '--bytes', args.bytes)
        return collectives.convert([(args.collective, size)],
                                   *self.ranks(args), args.algorithm)


class FromTorch(_Collective):
    """Make a hint from a model that PyTorch trains in parallel"""

    example = 'ddp --parameters 7B --world-size 16 --iterations 0'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('strategy', choices=sorted(
            collectives.STRATEGIES), help='Kind of parallelism')
        parser.add_argument('--parameters', required=True, metavar='<n>',
                            help='Number of parameters of the model, such as '
                                 '25.6M or 7B')
        parser.add_argument('--dtype', choices=sorted(collectives.DTYPES),
                            default='fp32', help=(
                                'Type of the numbers that are sent'))
        return parser

    def make(self, args: Any) -> made.Made:
        return collectives.convert_torch(
            args.strategy, inputs.amount(inputs.OPTIONS, '--parameters',
                                         args.parameters),
            args.dtype, *self.ranks(args), args.algorithm)


class FromAicb(_Maker):
    """Make a hint from a training workload of AICB"""

    example = 'workload.csv --gpus-per-vm 8'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('file', help='CSV, or text for SimAI, as AICB '
                                         'writes it')
        parser.add_argument('--gpus-per-vm', default='8', metavar='<n>',
                            help='GPUs of each VM, default 8')
        parser.add_argument('--world-size', metavar='<n>',
                            help='Number of ranks; default: that of the file')
        return parser

    def make(self, args: Any) -> made.Made:
        return aicb.convert(
            args.file, _number(args, 'gpus-per-vm', collectives.MAX_RANKS),
            _number(args, 'world-size', collectives.MAX_RANKS)
            if args.world_size is not None else None)


class FromObserved(_Maker):
    """Make a hint from the observed traffic of a group of your project

    The bytes are those of its whole life, or of the last [profiles] keep_days.
    """

    example = 'wordcount --format tm'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('group', metavar='<group>',
                            help='Name or id; the latest of a name')
        parser.add_argument('--project', metavar='<project>',
                            help='Name or id, default your own')
        return parser

    def make(self, args: Any) -> made.Made:
        clients = self.app.client_manager
        found: wire.Profile = clients.coflow.call(
            wire.SHOW, args.group, None if args.project is None
            else projects.find(clients.session, args.project))
        if found.tm is None:
            raise exception.NotFound(what='Traffic of group', id=args.group)
        unseen = [pair for pair in found.pairs if not pair.is_seen]
        told = [f'The bytes are those of {found.n_hours} hours of group '
                f'{found.group_name}: {found.pattern}.']
        if unseen:
            told.append(f'{len(unseen)} pairs shared a host, where nobody '
                        'counts; the pattern tells theirs, if there is one.')
        return made.Made(found.tm, tuple(told))
