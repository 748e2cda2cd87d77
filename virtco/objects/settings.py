# SPDX-License-Identifier: Apache-2.0

"""The operator's run-time choices: configured, then remembered."""

from collections.abc import Callable
from collections.abc import Mapping
import logging
import threading
import time
import typing

from oslo_config import cfg
from sqlalchemy import orm

from virtco import exception
from virtco import own_policies
from virtco.db import operators
from virtco.db import records
from virtco.db import session as db_session
from virtco.wire import setting as wire

LOG = logging.getLogger(__name__)

FAIR = 'fair'
CHOICES = {name: typing.get_args(kind) for name, kind
           in typing.get_type_hints(wire.Settings).items()}


class Settings:
    """Settings that operators change at run time.

    :param changed: is called after a change.
    :ivar is_shadow: whether decisions have no effect.
    :raises virtco.exception.Invalid: for an own order, and none installed.
    """

    def __init__(self, conf: cfg.ConfigOpts, database: db_session.Database,
                 changed: Callable[[], None] = lambda: None,
                 clock: Callable[[], float] = time.time):
        self._database = database
        self._clock = clock
        self._changed = changed
        # No older read comes after a newer one, or after a change.
        self._lock = threading.Lock()
        # Packages do not come while a process runs.
        self._has_no_own = False
        self.is_shadow = conf.placement.mode == 'shadow'
        if conf.scheduler.order == own_policies.OWN:
            own_policies.installed()
        self._values: dict[str, str] = {
            'planner': conf.placement.planner,
            'objective': conf.placement.objective,
            'order': conf.scheduler.order,
            'ceil': conf.scheduler.ceil}

    def load(self) -> None:
        with self._lock, self._database.reader() as session:
            stored = records.settings(session)
            self._values.update({name: value for name, value in stored.items()
                                 if value in CHOICES.get(name, ())
                                 and self._is_possible(name, value)})

    def _is_possible(self, name: str, value: str) -> bool:
        """Tell whether a stored value can be followed here."""
        if (name, value) != ('order', own_policies.OWN):
            return True
        if not self._has_no_own:
            try:
                own_policies.installed()
                return True
            except exception.Invalid as error:
                LOG.warning('The stored setting is not followed: %s', error)
                self._has_no_own = True
        return False

    def get(self) -> dict[str, str]:
        return dict(self._values)

    @property
    def is_fair(self) -> bool:
        """Whether TCP shares the links, without classes."""
        return self.is_shadow or self['order'] == FAIR

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def change(self, values: Mapping[str, str],
               who: str = '') -> dict[str, str]:
        """Remember new values, and who gave them.

        :param values: values of :class:`virtco.wire.setting.SettingsChange`.
        :raises virtco.exception.Invalid: for an own order, and none installed.
        """
        if values.get('order') == own_policies.OWN:
            own_policies.installed()
        before = self.get()
        now_s = self._clock()

        def save(session: orm.Session) -> None:
            records.save_settings(session, dict(values))
            for name, value in values.items():
                if value != before[name]:
                    operators.add_change(session, who, f'setting {name}',
                                         before[name], value, now_s)

        self._database.retried(save)
        with self._lock:
            self._values.update(values)
        self._changed()
        return self.get()
