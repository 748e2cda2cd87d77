# SPDX-License-Identifier: Apache-2.0

"""Whether this machine can run the emulated testbed."""

import os
import shutil
import subprocess

from virtco import exception
from virtco_lab.emulation import bed
from virtco_lab.emulation import fabric
from virtco_lab.emulation import namespaces

_TOOLS = ('ip', 'tc', 'nft', 'nsenter', 'setpriv')


class CannotEmulate(exception.VirtcoException):
    """The machine lacks a right, tool or kernel feature of the testbed."""

    msg_fmt = 'This machine cannot run the emulated testbed: %(why)s.'


def check() -> None:
    """Build and remove the smallest fabric.

    :raises CannotEmulate: naming what is missing.
    """
    if os.geteuid() != 0:
        raise CannotEmulate(why='it needs root')
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        raise CannotEmulate(
            why=f'{", ".join(missing)} not found (see bindep.txt)')
    try:
        run = namespaces.new_run()
    except OSError as error:
        raise CannotEmulate(why=str(error)) from error
    try:
        trial = fabric.Fabric(run)
        trial.build(bed.Bed({'try': 1e8}))
        trial.add_vm('try', 'try')
    except subprocess.CalledProcessError as error:
        raise CannotEmulate(
            why=f'{error.cmd[2]} says {error.stderr.strip()}') from error
    except OSError as error:
        raise CannotEmulate(why=f'no network namespaces ({error})') from error
    finally:
        namespaces.release(run)
