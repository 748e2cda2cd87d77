# SPDX-License-Identifier: Apache-2.0

"""One line when the controller goes, and one when it is back."""

import time

from oslo_log import log as logging

LOG = logging.getLogger(__name__)


class Outage:
    """Whether the controller is away."""

    def __init__(self) -> None:
        self._began_s: float | None = None

    def begin(self, why: str) -> None:
        """Say why, unless it was said before.

        :param why: a sentence.
        """
        level = logging.WARNING if self._began_s is None else logging.DEBUG
        if self._began_s is None:
            self._began_s = time.monotonic()
        LOG.log(level, '%s The last policy holds.', why)

    def end(self) -> None:
        """Say how long it lasted, if there was one."""
        if self._began_s is None:
            return
        lasted_s = time.monotonic() - self._began_s
        self._began_s = None
        LOG.info('The controller answers again after %.1f s.', lasted_s)
