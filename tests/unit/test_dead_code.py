# SPDX-License-Identifier: Apache-2.0

"""Everything that is defined is used, and not by tests alone.

A name of a module is used where an import leads to it, or where its own module
names it. A method, a property or a constant of a class is used where an
attribute of that name is read; where fields have the same name, it must be
called. ``self.name`` counts for the class, its bases and its subclasses only.
What only unused code uses is unused.

Nothing here knows of types: a method that shares its name with a method in
use, of any other class, is not found.
"""

import ast
import collections
import dataclasses
import fnmatch
import itertools
import pathlib
import re
import textwrap

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PRODUCT = ('virtco', 'edge_module', 'nova_filters', 'lab/virtco_lab',
           'tenant/virtco_tenant')
PROGRAMS = ('benchmarks', 'examples', 'setup.py', 'doc/source/conf.py')
#: A name counts here that stands behind the path of its module.
TEXTS = ('setup.cfg', 'lab/pyproject.toml', 'tenant/pyproject.toml',
         'devstack', 'etc', 'tools', '.ci')
#: Names that others call, as file:name, and who does.
CALLED_BY_OTHERS = {
    'virtco/api/*.py:on_*': 'Falcon, by the method of a request',
    'virtco/api/*.py:process_re*': 'Falcon, of its middleware',
    'virtco/api/listeners.py:readable': 'waitress, of a connection',
    'virtco/api/listeners.py:received': 'waitress, of a connection',
    'virtco/api/listeners.py:writable': 'waitress, of a connection',
    'virtco/api/listeners.py:parser_class': 'waitress, of a connection',
    'virtco/api/listeners.py:task_class': 'waitress, of a connection',
    'virtco/api/listeners.py:build_response_header': 'waitress, of a request',
    'virtco/api/handlers/*.py:*': 'virtco.api.routes, by the operation',
    'virtco/configuration.py:formatMessage': 'logging, of a formatter',
    'virtco/conf/*.py:OPTS': 'virtco.conf.opts, of each module beside it',
    'virtco/conf/*.py:GROUP': 'virtco.conf.opts, of each module beside it',
    'virtco/cmd/status.py:_upgrade_checks': 'oslo.upgradecheck',
    'virtco/db/alembic/versions/*.py:*revision': 'Alembic',
    'virtco/db/alembic/versions/*.py:upgrade': 'Alembic',
    'virtco/db/models.py:_is_live': 'SQLAlchemy, for is_live in a query',
    'virtco/db/models.py:type_annotation_map': 'SQLAlchemy',
    'virtco/follow/listener.py:info': 'oslo.messaging, by priority',
    'virtco/follow/listener.py:error': 'oslo.messaging, by priority',
    'virtco/distribute/*.py:connection_*': 'asyncio, of its protocols',
    'virtco/distribute/*.py:*_writing': 'asyncio, of its protocols',
    'virtco/distribute/*.py:get_buffer': 'asyncio, of its protocols',
    'virtco/distribute/*.py:buffer_updated': 'asyncio, of its protocols',
    'virtco/osc/command_base.py:_fill_text': 'argparse, of a formatter',
    'virtco/osc/*.py:get_parser': 'cliff, of a command',
    'virtco/osc/*.py:take_action': 'cliff, of a command',
    'tenant/virtco_tenant/hintkit/commands.py:deprecated': 'cliff',
    'virtco/osc/table_columns.py:machine_readable': 'cliff, of a column',
    'virtco/osc/shell.py:[bilr]*_*': 'cliff, of an application',
    'virtco/osc/shell.py:DEFAULT_VERBOSE_LEVEL': 'cliff, of an application',
    'virtco/osc/plugin.py:*': 'python-openstackclient',
    'tenant/virtco_tenant/cast/tracker.py:do_*': 'http.server',
    'tenant/virtco_tenant/cast/tracker.py:log_message': 'http.server',
    'virtco/client/v1.py:*': 'programs of others, as of any client',
    'virtco/client/openstack_sdk.py:add': 'openstacksdk, as vendor_hook',
    'virtco/client/openstack_sdk.py:skip_*': 'openstacksdk, of a proxy',
    'virtco/topology/drawing.py:wordsep_re': 'textwrap, to break lines',
    'virtco/wire/api_versions.py:*': 'virtco.wire.operations',
    'virtco/wire/placement.py:RELEASE': 'virtco.wire.operations',
    'virtco/watcher/*.py:*': 'Watcher, of a goal and a strategy',
    'edge_module/ports/ovsdb.py:create_transaction': 'ovsdbapp, of an API',
    'lab/virtco_lab/cmd/arguments.py:parse_known_args': 'argparse',
    'lab/virtco_lab/cloud/driver.py:*': 'Nova, of its virt drivers',
    'lab/virtco_lab/cloud/mechanism.py:*': 'Neutron, of its drivers',
    'lab/virtco_lab/emulation/nova_cloud.py:*': "Nova's own tests",
    'lab/virtco_lab/emulation/nova_stack.py:serve': 'unittest, of a test',
    'nova_filters/coflow_*.py:*': 'Nova, of its filters and weighers',
    'nova_filters/notifier.py:*': 'oslo.messaging, of its drivers',
    'edge_module/dial.py:_new_conn': 'urllib3, of a connection',
    'edge_module/dial.py:ConnectionCls': 'urllib3, of a pool',
    'edge_module/dial.py:init_poolmanager': 'requests, of an adapter',
    'edge_module/privileged/guarded.py:find_spec': 'the import system',
}
#: Equipment of the tests: services, a client of Nova, kernels as plain Python.
EQUIPMENT = ('lab/virtco_lab/services/',
             'lab/virtco_lab/emulation/nova_client.py', 'virtco/compiled.py')
_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
_PATH = re.compile(
    r'\b(?:virtco(?:_lab|_tenant)?|edge_module|nova_filters)(?:[.:]\w+)+')
_DYNAMIC = re.compile('[gsh][ea][ts]attr|attrgetter|methodcaller')


@dataclasses.dataclass(eq=False)
class Definition:
    """What a statement of a module or of a class defines.

    :ivar owner: the class; None in a module.
    :ivar is_method: it is used by being called.
    """

    module: str
    name: str
    place: str
    owner: 'Definition | None' = None
    is_method: bool = False

    def __str__(self):
        owner = f'{self.owner.name}.' if self.owner else ''
        return f'{self.place} {owner}{self.name}'


@dataclasses.dataclass
class Uses:
    """Names that a definition uses.

    :ivar paths: what imports lead to, such as virtco.units.GBIT.
    :ivar modules: whole ones, of which any attribute that is read somewhere
        may be meant.
    :ivar attributes: (name, whether it is called).
    :ivar own: (class, name) of what it reads of itself.
    """

    paths: set[str] = dataclasses.field(default_factory=set)
    modules: set[str] = dataclasses.field(default_factory=set)
    attributes: set[tuple[str, bool]] = dataclasses.field(default_factory=set)
    own: set[tuple[str, str]] = dataclasses.field(default_factory=set)


class Code:
    def __init__(self):
        self.in_modules = collections.defaultdict(list)
        self.in_classes = []
        self.aliases = collections.defaultdict(dict)
        self.bases = collections.defaultdict(set)
        self.fields = set()
        self.uses = collections.defaultdict(Uses)  # None: of modules' bodies.

    def add(self, path, text, is_judged=True):
        _Reader(self, path, is_judged).read(text)

    def add_text(self, text):
        self.uses[None].paths.update(
            found.replace(':', '.') for found in _PATH.findall(text))

    def add_template(self, text):
        self.uses[None].attributes.update(
            (name, True) for name in re.findall(r'\.(\w+)', text))

    def unused(self):
        kin = {name: self._related(name) for name in list(self.bases)}
        used, waiting = set(), [None]
        names, own, modules = set(), set(), set()
        while waiting:
            while waiting:
                uses = self.uses[waiting.pop()]
                names |= uses.attributes
                modules |= uses.modules
                own |= uses.own
                for path in uses.paths:
                    found, rest = self._follow(path)
                    if path.endswith('.*'):
                        found = [one for some in self.in_modules.values()
                                 for one in some
                                 if one.module == path.removesuffix('.*')]
                    names.update(itertools.product(rest, (True, False)))
                    waiting += set(found) - used
                    used.update(found)
            for one in itertools.chain(self.in_classes, *(
                    self.in_modules.values())):
                if one in used:
                    continue
                is_read = (one.name, True) in names or (
                    (one.name, False) in names
                    and not (one.is_method and one.name in self.fields))
                if (is_read and one.module in modules if one.owner is None
                    else one.owner in used and (is_read or any(
                        (cls, one.name) in own
                        for cls in kin[one.owner.name]))):
                    used.add(one)
                    waiting.append(one)
        return [one for one in itertools.chain(
            *self.in_modules.values(), self.in_classes) if one not in used]

    def _follow(self, path):
        """The definitions that a path leads to, and what follows them."""
        parts = path.split('.')
        for n in range(1, len(parts)):
            module, name = '.'.join(parts[:n]), parts[n]
            if (module, name) in self.in_modules:
                return self.in_modules[module, name], parts[n + 1:]
            other = self.aliases.get(module, {}).get(name)
            if other is not None and other != f'{module}.{name}':
                return self._follow('.'.join([other, *parts[n + 1:]]))
        return [], []

    def _related(self, cls):
        """Names of a class's subclasses and of all that they inherit."""
        below = self._closure({cls}, lambda one: {
            name for name, bases in self.bases.items() if one in bases})
        return self._closure(below, lambda one: self.bases.get(one, set()))

    @staticmethod
    def _closure(names, step):
        found, waiting = set(names), list(names)
        while waiting:
            new = step(waiting.pop()) - found
            found |= new
            waiting += new
        return found


class _Reader(ast.NodeVisitor):
    def __init__(self, code, path, is_judged):
        self._code = code
        self._path = path
        self._is_judged = is_judged
        self._module = path.removesuffix('.py').removesuffix(
            '/__init__').removeprefix('lab/').removeprefix(
            'tenant/').replace('/', '.')
        self._aliases = code.aliases[self._module]
        self._uses = code.uses[None]
        self._class = None
        self._local = set()
        self._is_dynamic = False

    def read(self, text):
        self._is_dynamic = _DYNAMIC.search(text) is not None
        for node in ast.parse(text).body:
            self._statement(node, None)

    def visit_Import(self, node):
        for alias in node.names:
            top = alias.name.partition('.')[0]
            self._aliases[alias.asname or top] = (
                alias.name if alias.asname else top)

    def visit_ImportFrom(self, node):
        for alias in node.names:
            source = (node.module or '').removeprefix('cython.cimports.')
            self._aliases[alias.asname or alias.name] = (
                f'{source}.{alias.name}')

    def _statement(self, node, owner):
        """A statement of a module, or of the class that is the owner."""
        if isinstance(node, ast.If | ast.Try | ast.With):
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.stmt):
                    self._statement(child, owner)
                else:
                    self.visit(child)
            return
        names = self._defined(node, owner) if self._is_judged else []
        found = [self._define(node, name, owner) for name in names]
        before = self._uses, self._class
        if len(found) == 1:
            self._uses = self._code.uses[found[0]]
        if isinstance(node, ast.ClassDef):
            self._class = node.name
            for child in (*node.bases, *node.keywords, *node.decorator_list):
                self.visit(child)
            self._code.bases[node.name].update(
                self._aliases.get(name, name).rpartition('.')[2] for name in (
                    ast.unparse(base).partition('[')[0]
                    for base in node.bases))
            is_enum = any('Enum' in ast.unparse(base) for base in node.bases)
            for child in node.body:
                if is_enum and isinstance(child, ast.Assign):
                    self.visit(child)  # Its value leads to it.
                else:
                    self._statement(child, found[0] if found else owner)
        else:
            self.visit(node)
        self._uses, self._class = before

    def _defined(self, node, owner):
        if isinstance(node, _FUNCTION | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.AnnAssign) and self._class is not None:
            self._code.fields.add(node.target.id)
            names = []
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = getattr(node, 'targets', None) or [node.target]
            names = [one.id for target in targets for one in ast.walk(target)
                     if isinstance(one, ast.Name)
                     and isinstance(one.ctx, ast.Store)]
        else:
            names = []
        return [name for name in names
                if not re.fullmatch('__.*__|_', name)
                and not any(fnmatch.fnmatch(f'{self._path}:{name}', pattern)
                            for pattern in CALLED_BY_OTHERS)
                and (self._class is None or owner is not None)
                and not (self._path.startswith('tests/')
                         and self._runs_tests(node, name))]

    def _runs_tests(self, node, name):
        """Whether pytest or unittest may find it."""
        return (self._class is not None
                or not isinstance(node, _FUNCTION | ast.ClassDef)
                or name.startswith(('test_', 'pytest', 'Test'))
                or name.endswith('Test')
                or bool(getattr(node, 'decorator_list', None)))

    def _define(self, node, name, owner):
        one = Definition(
            self._module, name, f'{self._path}:{node.lineno}', owner)
        if owner is None:
            self._code.in_modules[self._module, name].append(one)
        else:
            one.is_method = isinstance(node, _FUNCTION) and not any(
                'property' in ast.unparse(decorator)
                for decorator in node.decorator_list)
            self._code.in_classes.append(one)
        return one

    def visit_FunctionDef(self, node):
        before = self._local
        for child in node.decorator_list:
            self.visit(child)
        local, not_local = set(), set()
        for one in ast.walk(node):
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
                local.add(one.id)
            elif isinstance(one, ast.arg):
                local.add(one.arg)
            elif isinstance(one, ast.Global):
                not_local.update(one.names)
        self._local = (before | local) - not_local
        for child in ast.iter_child_nodes(node):
            if child not in node.decorator_list:
                self.visit(child)
        self._local = before

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Name(self, node):
        if isinstance(node.ctx, ast.Load) and node.id not in self._local:
            self._uses.paths.add(f'{self._module}.{node.id}')
            self._uses.modules.add(self._aliases.get(node.id))
            if self._class is not None:
                self._uses.own.add((self._class, node.id))

    def visit_Call(self, node):
        if isinstance(node.func, ast.Attribute):
            self._attribute(node.func, True)
        else:
            self.visit(node.func)
        if isinstance(node.func, ast.Name) and node.func.id == 'getattr':
            path = self._dotted(node.args[0])
            if path is not None and not isinstance(
                    node.args[1], ast.Constant):
                self._uses.paths.add(f'{path}.*')
        for child in (*node.args, *node.keywords):
            self.visit(child)

    def visit_Attribute(self, node):
        self._attribute(node, False)

    def _attribute(self, node, is_called):
        path = self._dotted(node)
        if path is not None:
            self._uses.paths.add(path)
            return
        if not isinstance(node.ctx, ast.Load):
            self._code.fields.add(node.attr)
        elif self._class is not None and getattr(
                node.value, 'id', None) in ('self', 'cls'):
            self._uses.own.add((self._class, node.attr))
        else:
            self._uses.attributes.add((node.attr, is_called))
        self.visit(node.value)

    def _dotted(self, node):
        """The path that an expression such as units.GBIT stands for."""
        names = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id in self._local:
            return None
        if node.id not in self._aliases and not names:
            return None
        if node.id in self._aliases:
            return '.'.join([self._aliases[node.id], *reversed(names)])
        return '.'.join([self._module, node.id, *reversed(names)])

    def visit_Expr(self, node):
        if not isinstance(node.value, ast.Constant):  # No docstring.
            self.visit(node.value)

    def visit_Constant(self, node):
        if isinstance(node.value, str):
            self._uses.paths.update(
                found.replace(':', '.') for found in _PATH.findall(node.value))
            self._uses.modules.add(node.value)
            if self._is_dynamic and node.value.isidentifier():
                self._uses.attributes.add((node.value, True))


def _files(*names, suffix=''):
    for name in names:
        path = ROOT / name
        if not path.is_dir():
            yield path
        yield from sorted(one for one in path.rglob(f'*{suffix}')
                          if one.is_file() and one.suffix != '.pyc')


@pytest.fixture(scope='module')
def unused():
    """What no program uses, and what not even a test uses."""
    code = Code()
    for path in _files(*PRODUCT, *PROGRAMS, suffix='.py'):
        name = path.relative_to(ROOT).as_posix()
        code.add(name, path.read_text(), name.startswith(PRODUCT))
    for path in _files(*TEXTS):
        text = path.read_text()
        if text.startswith('#!/usr/bin/env python3'):
            code.add(path.name, text, False)
        code.add_text(text)
    for path in _files(*PRODUCT, suffix='.j2'):
        code.add_template(path.read_text())
    by_programs = code.unused()
    for path in _files('tests', suffix='.py'):
        code.add(path.relative_to(ROOT).as_posix(), path.read_text())
    return by_programs, code.unused()


_MADE = {
    'virtco/a.py': """
        from virtco import b
        from virtco.b import Base as Other

        def main():
            return b.living() + Made(1).asked(b.OF_USE)

        def _recurses():
            return _recurses()

        class Made(Other):
            value: int
            def asked(self, kept):
                return self._help() + (lambda: self.inherited)()
            def _help(self):
                return self.value
            def value_of(self):
                return 1
            def taken(self):
                return self.value_of
            def shown(self):
                return 2
            @property
            def wide(self):
                return 3

        async def forgotten(living):
            return living(), Made(2).wide
        """,
    'virtco/b.py': """
        OF_USE, UNUSED = 1, 2
        LEFT = OF_USE

        def living():
            if OF_USE:
                shown = local = 1
            return getattr(__name__, 'x', local) + shown

        def local():
            return chain()

        def chain():
            return 1

        class Base:
            def inherited(self):
                return _seen().shown
            def __len__(self):
                return 0

        class Seen:
            shown: bool

        def _seen():
            return Seen()
        """}


def test_the_finder_finds():
    code = Code()
    for path, text in _MADE.items():
        code.add(path, textwrap.dedent(text))
    code.add_text('program = virtco.a:main')
    assert {one.name for one in code.unused()} == {
        '_recurses', 'taken', 'value_of', 'shown', 'wide', 'forgotten',
        'UNUSED', 'LEFT', 'local', 'chain'}
    code.add('tests/unit/test_a.py', textwrap.dedent("""
        from virtco import a
        def test_forgotten():
            a.forgotten(), made().shown()
        def made():
            return 1
        def helper():
            return 2
        """))
    assert {one.name for one in code.unused()} == {
        '_recurses', 'taken', 'value_of', 'UNUSED', 'LEFT', 'local', 'chain',
        'helper'}


def test_a_program_uses_what_is_defined(unused):
    found = [str(one) for one in unused[0]
             if not one.place.startswith(EQUIPMENT)]
    assert not found, '\n' + '\n'.join(found)


def test_a_test_uses_what_is_made_for_tests(unused):
    found = [str(one) for one in unused[1]
             if one.place.startswith(('tests/', *EQUIPMENT))]
    assert not found, '\n' + '\n'.join(found)
