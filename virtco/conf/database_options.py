# SPDX-License-Identifier: Apache-2.0

"""Options of the database, those of oslo.db."""

from oslo_db import options as db_options

GROUP = 'database'
OPTS = db_options.database_opts
