# SPDX-License-Identifier: Apache-2.0

"""A plane as text for a terminal. Pure."""

from collections.abc import Iterator
from collections.abc import Sequence
import re
import textwrap

from virtco import units
from virtco.topology import hostlist
from virtco.topology import tree

#: The deepest tree that the laws allow leaves 29 of them to the text.
WIDTH = 80
#: A list of hosts takes at most this many lines.
MAX_HOST_LINES = 3
MAX_HOSTS_LISTED = 200


def uplink(found: tree.Uplink) -> str:
    """Write an uplink: ``100 Gbit/s``, ``up RATE, down RATE``, ``4:1``."""
    parts = []
    if found.up_bps is not None and found.up_bps == found.down_bps:
        parts.append(units.format_rate(found.up_bps))
    else:
        parts += [f'{way} {units.format_rate(rate_bps)}'
                  for way, rate_bps in (('up', found.up_bps),
                                        ('down', found.down_bps))
                  if rate_bps is not None]
    if found.oversubscription is not None:
        parts.append(f'{found.oversubscription:g}:1')
    return ', '.join(parts)


def plane(found: tree.Plane) -> Iterator[str]:
    """Yield lines of at most WIDTH characters."""
    levels = ' < '.join(found.level_names()) or 'no levels'
    n_hosts = sum(1 for _host in found.hosts())
    yield from _wrapped(f'plane {found.name}: {levels}; {n_hosts} hosts',
                        '', '  ')
    for level in found.levels:
        if level.uplink.is_given():
            yield from _wrapped(f'level {level.name}: uplink '
                                f'{uplink(level.uplink)}', '  ', '    ')
    for root in found.roots:
        yield from _node(found, root, '', '')


def without_leaf(plane: str, hosts: Sequence[str]) -> list[str]:
    """List hosts that are in no leaf of a plane, as wrapped lines."""
    if not hosts:
        return []
    more = (f' and {len(hosts) - MAX_HOSTS_LISTED} more'
            if len(hosts) > MAX_HOSTS_LISTED else '')
    return textwrap.wrap(
        f'{len(hosts)} hosts are in no leaf of plane {plane}: '
        + ', '.join(hosts[:MAX_HOSTS_LISTED]) + more, WIDTH,
        subsequent_indent='  ', break_on_hyphens=False)


def _node(plane: tree.Plane, node: tree.Node, first: str, rest: str
          ) -> Iterator[str]:
    """Draw a node and all below it, line by line.

    :param first: text before the node's own line.
    :param rest: text before the lines below it.
    """
    height = node.height()
    words = [node.name, f'({plane.level(height).name})']
    if node.uplink.is_given():
        words.append(uplink(node.uplink))
    n_hosts = sum(1 for _host in node.all_hosts())
    words.append(f'{n_hosts} hosts')
    if node.hosts and not node.children:
        words[-1] += ': ' + hostlist.compress(node.hosts)
    inner = rest + ('│ ' if node.children else '  ')
    yield from _wrapped(' '.join(words), first, inner + '  ')
    if node.hosts and node.children:
        yield from _wrapped('here: ' + hostlist.compress(node.hosts),
                            inner + '  ', inner + '    ')
    for child in node.children:
        last = child is node.children[-1]
        yield from _node(plane, child, rest + ('└─ ' if last else '├─ '),
                         rest + ('   ' if last else '│  '))


class _Wrapper(textwrap.TextWrapper):
    """Breaks text at blanks and after commas, else anywhere."""

    wordsep_re = re.compile(r'([^\s,]*,|\s+)')


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    """Wrap a text; a long end becomes …"""
    return _Wrapper(WIDTH, initial_indent=first, subsequent_indent=rest,
                    max_lines=MAX_HOST_LINES, placeholder='…').wrap(text)
