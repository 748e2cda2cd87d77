# SPDX-License-Identifier: Apache-2.0

"""Which tables a database reads from end to end for a question."""

import json

import sqlalchemy as sa

#: What tenants fill. Claims are few: they end within seconds.
FILLED = {'groups', 'members', 'coflows', 'placements', 'profile_hours',
          'events'}


def scans(database, ask):
    """Plans of the question's statements that scan a table of tenants."""
    statements = []

    @sa.event.listens_for(database.engine, 'before_cursor_execute')
    def note(_connection, _cursor, statement, parameters, *_context):
        if statement.startswith('SELECT'):
            statements.append((statement, parameters))

    ask(database)
    sa.event.remove(database.engine, 'before_cursor_execute', note)
    explain = {'sqlite': _sqlite, 'mysql': _mariadb, 'mariadb': _mariadb,
               'postgresql': _postgresql}[database.engine.dialect.name]
    with database.engine.connect() as connection:
        return statements and [
            found for statement, parameters in statements
            for found in explain(connection, statement, parameters)]


def _aliases(statement):
    """Tables by what a plan calls them."""
    words = statement.replace(',', ' ').split()
    return {alias: name for name, middle, alias in zip(
        words, words[1:], words[2:]) if middle == 'AS'} | {
            name: name for name in FILLED}


def _sqlite(connection, statement, parameters):
    names = _aliases(statement)
    rows = connection.exec_driver_sql(
        f'EXPLAIN QUERY PLAN {statement}', parameters)
    return [row[-1] for row in rows
            if row[-1].startswith('SCAN')
            and names.get(row[-1].split()[1]) in FILLED]


def _mariadb(connection, statement, parameters):
    names = _aliases(statement)
    rows = connection.exec_driver_sql(f'EXPLAIN {statement}',
                                      parameters).mappings()
    return [f'{row["type"]} of {row["table"]} by {row["key"]}'
            + (', sorted' if 'filesort' in row['Extra'] else '')
            for row in rows
            if row['type'] in ('ALL', 'index')
            and names.get(row['table']) in FILLED]


def _postgresql(connection, statement, parameters):
    # A table of a test is so small that a scan is the fastest.
    connection.exec_driver_sql('SET LOCAL enable_seqscan = off')
    plan = connection.exec_driver_sql(
        f'EXPLAIN (FORMAT JSON) {statement}', parameters).scalar()
    if isinstance(plan, str):
        plan = json.loads(plan)
    nodes, found = [one['Plan'] for one in plan], []
    while nodes:
        node = nodes.pop()
        nodes += node.get('Plans', ())
        kind = node['Node Type']
        if (node.get('Relation Name') in FILLED
                and kind != 'Bitmap Heap Scan' and 'Index Cond' not in node):
            found.append(f'{kind} of {node["Relation Name"]} by '
                         f'{node.get("Index Name")}')
    return found
