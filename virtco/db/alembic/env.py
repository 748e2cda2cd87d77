# SPDX-License-Identifier: Apache-2.0

"""Runs the migrations over the connection that virtco.db.migration gives."""

from alembic import context

from virtco.db import models

context.configure(
    connection=context.config.attributes['connection'],
    target_metadata=models.Base.metadata,
    # SQLite cannot alter tables in place.
    render_as_batch=True)

with context.begin_transaction():
    context.run_migrations()
