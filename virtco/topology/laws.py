# SPDX-License-Identifier: Apache-2.0

"""Bounds and laws of a topology. Pure."""

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
