# SPDX-License-Identifier: Apache-2.0

"""The programs' entry points, which say what is not installed.

Each imports its program inside: what an extra would have brought is missed by
an import statement, mostly at the top of a module.
"""

import importlib
import sys

OWN = ('virtco', 'edge_module', 'nova_filters')


def api() -> int:
    return _run('virtco-api', 'virtco.cmd.api', 'controller')


def cast() -> int:
    return _run('virtco-cast', 'virtco.cast.command', 'cast')


def controller() -> int:
    return _run('virtco-controller', 'virtco.cmd.controller', 'controller')


def distributor() -> int:
    return _run('virtco-distributor', 'virtco.cmd.distributor', 'controller')


def edge() -> int:
    return _run('virtco-edge', 'edge_module.cmd', 'edge')


def emulate() -> int:
    return _run('virtco-emulate', 'virtco.cmd.emulate', 'sim')


def manage() -> int:
    return _run('virtco-manage', 'virtco.cmd.manage', 'controller')


def report() -> int:
    return _run('virtco-report', 'virtco.cmd.report', 'report')


def scheduler() -> int:
    return _run('virtco-scheduler', 'virtco.cmd.scheduler', 'controller')


def shell() -> int:
    return _run('virtco', 'virtco.osc.shell', 'osc')


def sim() -> int:
    return _run('virtco-sim', 'virtco.cmd.sim', 'sim')


def status() -> int:
    return _run('virtco-status', 'virtco.cmd.status', 'controller')


def missing(error: ImportError, extra: str) -> str:
    """What to install, in one line.

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
