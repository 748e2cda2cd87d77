# SPDX-License-Identifier: Apache-2.0

"""Which scheduler this host listens to: the newest that it heard of."""

import threading

from edge_module import state
from virtco import exception

_NAME = 'epoch'


class Epochs:
    """Remembered on disk, so that a start forgets nothing.

    :param files: None remembers until the end of the process.
    :ivar newest: 0 until a scheduler said which one it is.
    """

    def __init__(self, files: state.StateDir | None = None):
        self._files = files
        self._lock = threading.Lock()
        saved = files.load(_NAME) if files is not None else None
        self.newest = saved if type(saved) is int and saved > 0 else 0

    def hear(self, epoch: int) -> None:
        """:raises virtco.exception.PolicyInvalid: when its time is over."""
        with self._lock:
            if epoch < self.newest:
                raise exception.PolicyInvalid(
                    field='epoch', value=epoch,
                    limit=f'at least {self.newest}')
            if epoch > self.newest:
                self.newest = epoch
                if self._files is not None:
                    self._files.save(_NAME, epoch)
