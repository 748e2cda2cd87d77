# SPDX-License-Identifier: Apache-2.0

"""State kept on disk over restarts, such as the last policy, as JSON."""

import contextlib
import json
import os
import pathlib
from typing import Any

import msgspec
from oslo_log import log as logging

from virtco import exception

LOG = logging.getLogger(__name__)


class StateDir:
    """Small JSON files, each saved by one thread; they are replaced whole, or
    not at all.
    """

    def __init__(self, path: str, makes: bool = True):
        """Make the directory where it is missing.

        :param makes: False to read only: a directory of root's would be of no
            use to the agent.
        :raises virtco.exception.Invalid: where it cannot be made.
        """
        self.path = pathlib.Path(path)
        if not makes:
            return
        try:
            self.path.mkdir(mode=0o750, parents=True, exist_ok=True)
        except OSError as error:
            raise exception.Invalid(
                field='[edge] state_dir', value=path,
                limit=f'a directory ({exception.reason(error)})') from error

    def save(self, name: str, value: Any) -> None:
        """Replace a file. A full disk costs a warning, not the service.

        :param value: JSON value, which may hold dataclasses and tuples.
        """
        fresh = self.path / f'.{name}-new'
        try:
            with open(fresh, 'wb') as file:
                file.write(msgspec.json.encode(value))
                file.flush()
                # Otherwise the name may survive a crash without the text.
                os.fsync(file.fileno())
                os.replace(fresh, self.path / f'{name}.json')
        except OSError as error:
            LOG.warning('Cannot save %s in %s: %s', name, self.path, error)
            with contextlib.suppress(OSError):
                fresh.unlink()

    def load(self, name: str) -> Any | None:
        """Read a saved value; None when there is none or it is invalid."""
        try:
            return json.loads((self.path / f'{name}.json').read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            LOG.warning('Cannot read %s in %s, starting without: %s', name,
                        self.path, error)
            return None
