# SPDX-License-Identifier: Apache-2.0

"""Entry points of the programs, which name packages that are missing.

Each imports its program inside, because a package of an extra that is missing
fails in an import statement, mostly at the top of a module.
"""

import functools
import importlib
import sys

OWN = ('virtco', 'edge_module', 'nova_filters', 'virtco_tenant',
       'virtco_lab')


def missing(error: ImportError, extra: str,
            distribution: str = 'virtco') -> str:
    """Return one line that names the extra to install.

    :raises ImportError: when it is a module of our own.
    """
    package = (error.name or '').partition('.')[0]
    if not isinstance(error, ModuleNotFoundError) or package in OWN:
        raise error
    return (f'the Python package {package} is not installed; the extra '
            f"{extra} of {distribution} brings it: pip install "
            f"'SOURCE[{extra}]'")


def bear_any_text() -> None:
    """Have the output escape characters that the terminal's encoding lacks,
    as the error stream does.
    """
    if hasattr(sys.stdout, 'reconfigure'):
        sys.stdout.reconfigure(errors='backslashreplace')


def run(program: str, module: str, extra: str,
        distribution: str = 'virtco') -> int:
    """Run a program's module; name the extra where a package is missing."""
    bear_any_text()
    try:
        return int(importlib.import_module(module).main())
    except ModuleNotFoundError as error:
        print(f'{program} cannot start: '
              f'{missing(error, extra, distribution)}', file=sys.stderr)
        return 1


api = functools.partial(run, 'virtco-api', 'virtco.cmd.api', 'controller')
controller = functools.partial(
    run, 'virtco-controller', 'virtco.cmd.controller', 'controller')
distributor = functools.partial(
    run, 'virtco-distributor', 'virtco.cmd.distributor', 'controller')
edge = functools.partial(run, 'virtco-edge', 'edge_module.cmd', 'edge')
manage = functools.partial(
    run, 'virtco-manage', 'virtco.cmd.manage', 'controller')
scheduler = functools.partial(
    run, 'virtco-scheduler', 'virtco.cmd.scheduler', 'controller')
shell = functools.partial(run, 'virtco', 'virtco.osc.shell', 'osc')
status = functools.partial(
    run, 'virtco-status', 'virtco.cmd.status', 'controller')
