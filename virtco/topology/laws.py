# SPDX-License-Identifier: Apache-2.0

"""Bounds and laws of a topology. Pure."""

import collections
import re
from typing import Any

from virtco import exception
from virtco.topology import tree

MAX_PLANES = 16
MAX_DEPTH = 16
MAX_NODES = 50_000
MAX_HOSTS = 100_000
MAX_RATE_BPS = 1e15
MAX_OVERSUBSCRIPTION = 1e6

NAME = re.compile(r'[A-Za-z0-9._:@-]{1,255}')


class Wrong(exception.TopologyInvalid):
    """Error of a topology with its place in the document.

    :ivar path: keys and indices of the wrong value in its document.
    :ivar line: line of the file, from 1; None where it is not known.
    """

    line: int | None = None

    def __init__(self, path: tuple[Any, ...], field: str, value: Any,
                 limit: str):
        self.path = path
        super().__init__(field=field, limit=limit,
                         value=None if value is None else repr(value))


def name(value: Any, path: tuple[Any, ...], field: str) -> str:
    """Check the name of a plane, level, node or host; return it.

    :raises virtco.exception.TopologyInvalid:
    """
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise Wrong(path, field, value,
                    'a name of at most 255 letters, digits or . _ : @ -')
    return value


class Census:
    """Counts the nodes and hosts of one plane while it is read."""

    def __init__(self, plane: str) -> None:
        self._plane = plane
        self._nodes: set[str] = set()
        self._leaf_of: dict[str, str] = {}

    def node(self, name: str, depth: int, path: tuple[Any, ...]) -> None:
        """Check and count a node of the plane.

        :param depth: depth of the node below its root, which has 0.
        """
        if depth >= MAX_DEPTH:
            raise Wrong(path, f'plane {self._plane}, node {name}',
                        f'depth {depth + 1}', f'at most {MAX_DEPTH} levels')
        if name in self._nodes:
            raise Wrong(path, f'plane {self._plane}, node', name,
                        'a name that no other node of the plane has')
        if len(self._nodes) >= MAX_NODES:
            raise Wrong(path, f'plane {self._plane}, node {name}',
                        'one more', f'at most {MAX_NODES} nodes per plane')
        self._nodes.add(name)

    def hosts(self, hosts: tuple[str, ...], node: str,
              path: tuple[Any, ...]) -> None:
        if len(set(hosts)) < len(hosts):
            (twice, _count), = collections.Counter(hosts).most_common(1)
            raise Wrong(path, f'plane {self._plane}, node {node}: hosts',
                        twice, 'each host once')
        for host in hosts:
            before = self._leaf_of.setdefault(host, node)
            if len(self._leaf_of) > MAX_HOSTS:
                raise Wrong(path, f'plane {self._plane}, node {node}: hosts',
                            'one more', f'at most {MAX_HOSTS} per plane')
            if before != node:
                raise Wrong(path, f'plane {self._plane}, node {node}: hosts',
                            host, f'a host that no other node has ({before} '
                                  'has it)')


def check_levels(plane: tree.Plane, path: tuple[Any, ...]) -> None:
    """Check that a plane's levels are few enough and differ in name.

    :raises virtco.exception.TopologyInvalid:
    """
    names = plane.level_names()
    if len(names) > MAX_DEPTH:
        raise Wrong(path, f'plane {plane.name}: levels', f'{len(names)}',
                    f'at most {MAX_DEPTH} levels')
    for i, found in enumerate(names):
        if found in names[:i]:
            raise Wrong(path, f'plane {plane.name}: levels', found,
                        'a name that no other level of the plane has')
