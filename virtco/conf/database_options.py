# SPDX-License-Identifier: Apache-2.0

"""Options of the database, those of oslo.db."""

from typing import Any

from oslo_config import cfg
from oslo_db import options as db_options

GROUP = 'database'


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(db_options.database_opts, group=GROUP)


def list_opts() -> dict[str, list[Any]]:
    return {GROUP: db_options.database_opts}
