# SPDX-License-Identifier: Apache-2.0

"""``virtco-status upgrade check``: is this machine ready for this code?"""

import importlib.metadata
import os
import re
import sys

from oslo_config import cfg
from oslo_upgradecheck import upgradecheck

from virtco import configuration
from virtco import exception
from virtco.api import listeners
from virtco.cmd import controller as controller_cmd
from virtco.db import migration
from virtco.db import session as db_session

#: The first release of each series, by its major version, in which the flaw of
#: scheduler hints is mended (OSSA-2026-022).
PATCHED_NOVA = {31: (31, 3, 1), 32: (32, 2, 1), 33: (33, 0, 2)}

GOOD = upgradecheck.Result(upgradecheck.Code.SUCCESS)


def _warning_unless(is_good: object, told: str) -> upgradecheck.Result:
    return GOOD if is_good else upgradecheck.Result(
        upgradecheck.Code.WARNING, told)


class Checks(upgradecheck.UpgradeCommands):
    """Checks of ``virtco-status upgrade check``."""

    def __init__(self, conf: cfg.ConfigOpts):
        super().__init__()
        self._conf = conf

    def _database(self) -> upgradecheck.Result:
        try:
            path = db_session.file_of(
                db_session.default_connection(self._conf))
            if path is not None and not os.path.exists(path):
                # A file made here would not belong to the service's user.
                return upgradecheck.Result(
                    upgradecheck.Code.FAILURE, f'There is no {path}: run '
                    "virtco-manage db sync as the service's user.")
            database = db_session.Database.from_conf(self._conf)
            migration.check(database)
            found = migration.current(database)
        except exception.VirtcoException as error:
            return upgradecheck.Result(upgradecheck.Code.FAILURE, str(error))
        if found == migration.head():
            return GOOD
        return upgradecheck.Result(
            upgradecheck.Code.FAILURE,
            f'The schema is at {found or "nothing"}, this code needs '
            f'{migration.head()}: run virtco-manage db sync.')

    def _deadlines(self) -> upgradecheck.Result:
        placement = self._conf.placement
        return _warning_unless(
            placement.budget_s < placement.deadline_s,
            f'[placement] budget_s = {placement.budget_s} is not below '
            f'deadline_s = {placement.deadline_s}: plans come too late.')

    def _authentication(self) -> upgradecheck.Result:
        api = self._conf.api
        return _warning_unless(
            api.auth_strategy == 'keystone' or api.host in listeners.LOOPBACK,
            f'[api] auth_strategy = noauth on {api.host}: whoever reaches '
            'it is an operator.')

    def _edges(self) -> upgradecheck.Result:
        return _warning_unless(
            self._conf.api.auth_strategy == 'noauth'
            or self._conf.distributor.client_ca_file,
            '[distributor] client_ca_file is not set: each edge module needs '
            'a user called as its [edge] host, or policy.yaml another rule '
            'virtco:edge:host.')

    def _comparison(self) -> upgradecheck.Result:
        return _warning_unless(
            self._conf.nova.auth_type,
            '[nova] auth_type is not set: a server whose deletion is not '
            'notified keeps its bandwidth.')

    def _nova(self) -> upgradecheck.Result:
        """Look at the Nova of this environment, where there is one."""
        try:
            found = importlib.metadata.version('nova')
        except importlib.metadata.PackageNotFoundError:
            return upgradecheck.Result(
                upgradecheck.Code.SUCCESS, 'Nova is not in this environment: '
                'run pip show nova where nova-scheduler runs, expected '
                + ', '.join('.'.join(map(str, patched))
                            for patched in PATCHED_NOVA.values())
                + ' or later of its series.')
        version = tuple(map(int, re.findall(r'\d+', found)[:3]))
        patched = PATCHED_NOVA.get(version[0], version)
        return _warning_unless(
            version >= patched,
            f'Nova {found} has the flaw of OSSA-2026-022 in scheduler hints: '
            f'expected {".".join(map(str, patched))} or later.')

    _upgrade_checks = (
        ('Database schema', _database),
        ('Time to plan', _deadlines),
        ('Authentication', _authentication),
        ('Edge modules', _edges),
        ('Comparison with Nova', _comparison),
        ('Release of Nova', _nova),
    )


def main(argv: list[str] | None = None) -> int:
    """Run ``virtco-status``; return its exit code."""
    conf = cfg.ConfigOpts()
    upgradecheck.register_cli_options(conf, Checks(conf))
    try:
        controller_cmd.make_conf(sys.argv[1:] if argv is None else argv,
                                 conf, prog='virtco-status')
        configuration.set_up_log(conf, 'virtco')
    except exception.ConfigInvalid as error:
        configuration.cannot_start('virtco-status', error)
        return 255
    upgradecheck.CONF = conf  # as its main() has it, for --json
    return int(upgradecheck.run(conf))


if __name__ == '__main__':
    sys.exit(main())
