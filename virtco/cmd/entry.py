# SPDX-License-Identifier: Apache-2.0

"""The programs' entry points, which say what is not installed.

Each imports its program inside: what an extra would have brought is missed by
an import statement, mostly at the top of a module.
"""

import functools
import importlib
import sys

OWN = ('virtco', 'edge_module', 'nova_filters')


def missing(error: ImportError, extra: str) -> str:
    """Return one line that names the extra to install.

    :raises ImportError: when it is a module of our own.
    """
    package = (error.name or '').partition('.')[0]
    if not isinstance(error, ModuleNotFoundError) or package in OWN:
        raise error
    return (f'the Python package {package} is not installed, '
            f"pip install 'virtco[{extra}]' does it")


def _run(program: str, module: str, extra: str) -> int:
    try:
        return int(importlib.import_module(module).main())
    except ModuleNotFoundError as error:
        print(f'{program} cannot start: {missing(error, extra)}',
              file=sys.stderr)
        return 1


api = functools.partial(_run, 'virtco-api', 'virtco.cmd.api', 'controller')
cast = functools.partial(_run, 'virtco-cast', 'virtco.cast.command', 'cast')
controller = functools.partial(
    _run, 'virtco-controller', 'virtco.cmd.controller', 'controller')
distributor = functools.partial(
    _run, 'virtco-distributor', 'virtco.cmd.distributor', 'controller')
edge = functools.partial(_run, 'virtco-edge', 'edge_module.cmd', 'edge')
emulate = functools.partial(
    _run, 'virtco-emulate', 'virtco.cmd.emulate', 'sim')
manage = functools.partial(
    _run, 'virtco-manage', 'virtco.cmd.manage', 'controller')
report = functools.partial(
    _run, 'virtco-report', 'virtco.cmd.report', 'report')
scheduler = functools.partial(
    _run, 'virtco-scheduler', 'virtco.cmd.scheduler', 'controller')
shell = functools.partial(_run, 'virtco', 'virtco.osc.shell', 'osc')
sim = functools.partial(_run, 'virtco-sim', 'virtco.cmd.sim', 'sim')
status = functools.partial(
    _run, 'virtco-status', 'virtco.cmd.status', 'controller')
