# SPDX-License-Identifier: Apache-2.0

"""A hint as text for a screen of 80 columns. Pure."""

from collections.abc import Iterable
from collections.abc import Sequence
import itertools
import re
import shlex
import textwrap

from virtco import hint_matrix
from virtco import hints
from virtco import units
from virtco.model import coflow as coflow_model
from virtco_tenant.hintkit import figures

WIDTH = 80
#: Largest matrix that is shown as numbers, and as one character a VM.
GRID_VMS = 11
#: Rows of the table of VMs without --all.
VM_ROWS = 16
#: Longest text that stands in the ready line; a longer one stays in a file.
LINE_CHARS = 2000

_SHADES = '.:-=+*#%@'
_CELL = 6
_QUANTITY = re.compile(r'([0-9]) (?=[kMGTP]?(?:B|bit/s)\b|(?:us|ms|s|min|h)\b'
                       r'|VMs?\b|slots\b)')


def report(found: figures.Figures, *, bounds: hint_matrix.Limits,
           n_vms: int | None, rate_bps: float, assumptions: Sequence[str],
           all_vms: bool, file: str | None) -> str:
    """Write all parts of the screen.

    :param n_vms: servers that will be created, None: a VM for each row.
    :param rate_bps: rate of each VM's port, for the time that the hint takes
        alone.
    :param file: file that holds the text of ``virtco:tm``.
    """
    parts = [_title(found), _bullets('Assumed', assumptions)]
    if found.hint.coflows:
        for coflow in found.hint.coflows:
            parts += [_matrix(coflow, len(found.hint.coflows) > 1)]
        parts += [_vms(found, all_vms), table(
            ('Limit (default)', 'Used', 'At most'),
            figures.limits(found, bounds)), _alone(found, rate_bps),
            _bullets('Warnings', figures.warnings(found, n_vms))]
    parts.append(_ready(found, n_vms, file))
    return '\n\n'.join(part for part in parts if part)


def _title(found: figures.Figures) -> str:
    hint = found.hint
    if hint.tm_ref is not None:
        return wrap(f'Hint {hint.coflow_name}: the registered matrix '
                    f'{hint.tm_ref}, which only the controller knows.')
    if not hint.coflows:
        return wrap(f'Hint {hint.coflow_name}: joins a group that another '
                    'request brings the matrix of.')
    return _wished(hint.wishes) + wrap(
        f'Hint {hint.coflow_name}: {len(found.vms)} VMs, {found.n_flows:,} '
        f'flows, {units.format_size(found.size_bytes)}'
        + (f' in {len(hint.coflows)} coflows' if len(hint.coflows) > 1
           else ''))


def _wished(wishes: hints.Wishes) -> str:
    """Return a paragraph about the group's wishes; empty without any."""
    found = []
    if wishes.within is not None:
        found.append(f'all of it below one {wishes.within.level} '
                     f'({_strength(wishes.within)})')
    if wishes.spread is not None:
        skew = wishes.spread.skew
        found.append(f'evenly below every {wishes.spread.level}'
                     + (f' but for {skew}' if skew else '')
                     + f' ({_strength(wishes.spread)})')
    return wrap(f'Wishes: {", ".join(found)}.') + '\n' if found else ''


def _strength(wish: hints.Wish) -> str:
    return 'required' if wish.required else 'preferred'


def wrap(text: str, first: str = '', rest: str = '') -> str:
    """Wrap text to the screen's width; a number stays with its unit."""
    return textwrap.fill(
        _QUANTITY.sub('\\1\xa0', text), WIDTH, initial_indent=first,
        subsequent_indent=rest).replace('\xa0', ' ')


def _bullets(title: str, texts: Sequence[str]) -> str:
    """Write texts as a list with a title; nothing without texts."""
    return '\n'.join([f'{title}:', *(wrap(text, '* ', '  ')
                                     for text in texts)]) if texts else ''


def _matrix(coflow: coflow_model.Coflow, named: bool) -> str:
    lines = []
    about = _about(coflow)
    if named or about:
        lines.append(wrap(f'Coflow {coflow.name}: '
                          + ', '.join([f'{len(coflow.flows):,} flows',
                                       units.format_size(coflow.size_bytes),
                                       *about])))
    return '\n'.join(lines + (_grid(coflow) if coflow.n_vms <= GRID_VMS
                              else _shades(coflow)))


def _about(coflow: coflow_model.Coflow) -> list[str]:
    result = []
    if coflow.dst_port is not None:
        result.append(f'port {coflow.dst_port}')
    if coflow.iterations != 1:
        result.append(f'{coflow.iterations or "endless"} iterations')
    for name, time_s in (('period', coflow.period_s),
                         ('compute', coflow.compute_s)):
        if time_s is not None:
            result.append(f'{name} {units.format_time(time_s)}')
    if coflow.order is not None:
        result.append(f'order {coflow.order}')
    if coflow.rank_hint:
        result.append('wants an order of ranks')
    return result


def _grid(coflow: coflow_model.Coflow) -> list[str]:
    """Format a coflow as a table of sizes; the row sends to the column."""
    largest = max((f.size_bytes for f in coflow.flows), default=0.0)
    scale, unit = next((scale, unit) for scale, unit in (
        (1e15, 'PB'), (1e12, 'TB'), (1e9, 'GB'), (1e6, 'MB'), (1e3, 'kB'),
        (1.0, 'B')) if largest >= scale or scale == 1.0)
    cells = {(f.src, f.dst): f.size_bytes / scale for f in coflow.flows}
    vms = range(coflow.n_vms)
    lines = [f'Sizes in {unit}; the row sends to the column.',
             ' ' * 5 + ''.join(f'{vm:>{_CELL}}' for vm in vms)]
    for src in vms:
        lines.append(f'{src:>5}' + ''.join(
            f'{_number(cells.get((src, dst), 0.0)):>{_CELL}}'
            for dst in vms))
    return lines


def _number(value: float) -> str:
    if not value:
        return '.'
    if value < 0.01:
        return '<.01'
    return f'{value:.3g}' if value < 999.5 else f'{value:.0f}'


def _shades(coflow: coflow_model.Coflow) -> list[str]:
    """Draw a coflow with a character for each pair, or block of pairs."""
    per = -(-coflow.n_vms // (WIDTH - 11))
    n = -(-coflow.n_vms // per)
    blocks: dict[tuple[int, int], float] = {}
    for flow in coflow.flows:
        pair = flow.src // per, flow.dst // per
        blocks[pair] = blocks.get(pair, 0.0) + flow.size_bytes
    most = max(blocks.values(), default=0.0)
    lines = [wrap(
        'A character for each '
        + ('pair of VMs' if per == 1 else f'block of {per} by {per} VMs')
        + f'; the row sends to the column. "{_SHADES}" are ninths of '
        f'{units.format_size(most)}.')]
    rows = [''.join(' ' if not blocks.get((src, dst)) else
                    _SHADES[min(8, int(9 * blocks[src, dst] / most))]
                    for dst in range(n)) for src in range(n)]
    first = 0
    for row, equal in itertools.groupby(rows):
        last = first + len(list(equal))
        lines.append(f'{_range(first * per, min(last * per, coflow.n_vms))}'
                     f' |{row}|')
        first = last
    return lines


def _range(first: int, end: int) -> str:
    """Format a range of rows, which share a line as they look alike."""
    return f'{first if end == first + 1 else f"{first}-{end - 1}":>8}'


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table; all columns but the first are aligned to the right."""
    cells = [list(header), *map(list, rows)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(header))]
    return '\n'.join('  '.join(
        f'{cell:<{width}}' if k == 0 else f'{cell:>{width}}'
        for k, (cell, width) in enumerate(zip(row, widths))).rstrip()
        for row in cells)


def _vms(found: figures.Figures, all_vms: bool) -> str:
    """Format the sums of VMs; successive VMs with equal sums share a line."""
    runs: list[tuple[figures.VmSums, int]] = []
    for vm in found.vms:
        first = runs[-1][0] if runs else None
        if first is not None and (
                (vm.out_bytes, vm.in_bytes, vm.n_to, vm.n_from)
                == (first.out_bytes, first.in_bytes, first.n_to,
                    first.n_from)):
            runs[-1] = first, vm.vm
        else:
            runs.append((vm, vm.vm))
    left_out = 0
    if len(runs) > VM_ROWS and not all_vms:
        kept = sorted(runs, key=lambda run: -max(run[0].out_bytes,
                                                 run[0].in_bytes))
        left_out = len(runs) - VM_ROWS
        runs = sorted(kept[:VM_ROWS], key=lambda run: run[0].vm)
    text = table(
        ('VM', 'Sends', 'To', 'Receives', 'From'),
        ((str(vm.vm) if vm.vm == last else f'{vm.vm}-{last}',
          units.format_size(vm.out_bytes), str(vm.n_to),
          units.format_size(vm.in_bytes), str(vm.n_from))
         for vm, last in runs))
    return text + (f'\n… the {left_out} lines with less are shown by --all'
                   if left_out else '')


def _alone(found: figures.Figures, rate_bps: float) -> str:
    size_bytes, vm, way = found.busiest()
    if not size_bytes:
        return ''
    time_s = units.transfer_time_s(size_bytes, rate_bps)
    return wrap(
        f'Alone, each VM on a host of its own with '
        f'{units.format_rate(rate_bps)}, it takes at least '
        f'{units.format_time(time_s)}: VM {vm} {way} '
        f'{units.format_size(size_bytes)}.')


def options(found: figures.Figures, file: str | None) -> list[str]:
    """Return the options for ``openstack server create``, shell-quoted."""
    values = hints.encode(found.hint)
    result = []
    for key, value in values.items():
        if key != hints.TM:
            result.append(f'--hint {shlex.quote(f"{key}={value}")}')
        elif len(found.text) > LINE_CHARS and file is not None:
            result.append(f'--hint "{key}=$(cat {shlex.quote(file)})"')
        else:
            result.append(f'--hint {shlex.quote(f"{key}={found.text}")}')
    return result


def _ready(found: figures.Figures, n_vms: int | None,
           file: str | None) -> str:
    count = n_vms or len(found.vms)
    several = [f'--min {count} --max {count}'] if count > 1 else []
    return ('For openstack server create:\n'
            + ' \\\n'.join('  ' + option for option in
                           several + options(found, file)))
