# SPDX-License-Identifier: Apache-2.0

"""``tools/cloud``: a whole OpenStack with virtco on this machine."""

import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import psutil
from rich import console
from rich import status as rich_status

from virtco import exception
from virtco_lab.cloud import accounts
from virtco_lab.cloud import keeper
from virtco_lab.cloud import layout as layouts
from virtco_lab.cmd import arguments
from virtco_lab.emulation import namespaces
from virtco_lab.emulation import process

_PROGRESS = pathlib.Path('/run/virtco-cloud.progress')
_DOWN_S = 120.0


def _is_up(layout: layouts.Layout | None) -> bool:
    """Return whether its keeper lives, not another process with its number."""
    return layout is not None and not namespaces.is_stale(layout.run)


class NoCloud(exception.VirtcoException):
    """A command needs a running cloud and none is up."""

    msg_fmt = 'No cloud is up; tools/cloud up starts one.'


class NoSuch(exception.VirtcoException):
    """A command names a VM or hypervisor that the cloud does not have."""

    msg_fmt = 'There is no %(what)s; there are: %(known)s.'


def _current() -> layouts.Layout:
    """Load the layout of the running cloud.

    :raises NoCloud: when none is up.
    """
    layout = layouts.load()
    if layout is None or not _is_up(layout):
        raise NoCloud()
    return layout


def _up(args: argparse.Namespace, out: console.Console) -> int:
    """Start a keeper in the background, and follow its progress."""
    if _is_up(layouts.load()):
        out.print('A cloud is up already; tools/cloud down ends it.')
        return 1
    namespaces.sweep()
    _PROGRESS.unlink(missing_ok=True)
    child = subprocess.Popen(
        [sys.executable, '-m', 'virtco_lab.cloud.command', 'keep',
         '--computes', str(args.computes), '--slots', str(args.slots),
         '--rate', f'{args.rate:.0f}', '--backend', args.backend],
        stdin=subprocess.DEVNULL,
        # The keeper outlives this command: a pipe that it held would never
        # end.
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True)
    try:
        with out.status('Starting the cloud …') as status:
            return _follow(child, out, status)
    except KeyboardInterrupt:
        child.terminate()
        child.wait()
        return 130


def _follow(child: 'subprocess.Popen[bytes]', out: console.Console,
            status: rich_status.Status) -> int:
    """Print the keeper's messages until the cloud is up or has failed."""
    shown = 0
    while True:
        has_ended = child.poll() is not None
        lines = _PROGRESS.read_text().splitlines() if (
            _PROGRESS.exists()) else []
        for line in lines[shown:]:
            if line == 'ready':
                out.print('The cloud is up. Try: tools/cloud demo, '
                          'tools/cloud openstack server list')
                return 0
            out.print(line, highlight=False, markup=False)
            status.update(f'{line.strip()} … next')
        shown = len(lines)
        if has_ended:
            return child.returncode or 1
        time.sleep(0.2)


def _down(args: argparse.Namespace, out: console.Console) -> int:
    """End the keeper, and remove all that is left of its cloud."""
    layout = layouts.load()
    if layout is None:
        out.print('No cloud is up.')
    elif not _is_up(layout):
        # Its keeper was killed, and the kernel ended its children.
        shutil.rmtree(layout.home, ignore_errors=True)
    else:
        process = psutil.Process(layout.pid)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_DOWN_S)
        except psutil.TimeoutExpired:
            process.kill()
    namespaces.sweep()
    _PROGRESS.unlink(missing_ok=True)
    return 0


def _run(layout: layouts.Layout, namespace: str, user: str,
         argv: list[str]) -> int:
    """Run a command in a namespace as a user; return its exit status."""
    return subprocess.run(
        [*namespaces.within(namespace), *argv],
        env={**os.environ, **layout.environment(user),
             'PATH': f'{os.path.dirname(sys.executable)}:'
                     f'{os.environ["PATH"]}'}).returncode


def _exec(args: argparse.Namespace, out: console.Console) -> int:
    """Run a command in the control namespace as a user of the cloud."""
    layout = _current()
    argv = ([] if args.action == 'exec' else [args.action]) + args.words
    if not argv:
        out.print('exec: name a command')
        return 2
    if args.action == 'virtco':
        argv[1:1] = ['--os-auth-type', 'password', '--controller-url',
                     layout.controller_url]
    return _run(layout, layout.control, args.user, argv)


def _vm(args: argparse.Namespace, out: console.Console) -> int:
    """Run a command in the namespace of a VM."""
    layout = _current()
    if not args.words:
        out.print('vm: name a command')
        return 2
    uuids = namespaces.call(layout.control, lambda: {
        server.name: server.id for server in accounts.connect(
            layout).compute.servers(all_projects=True)})
    if args.name not in uuids:
        raise NoSuch(what=f'VM {args.name}',
                     known=', '.join(sorted(uuids)) or 'none')
    return _run(layout, layout.vm_namespace(uuids[args.name]), 'demo',
                args.words)


def _edge(args: argparse.Namespace, out: console.Console) -> int:
    layout = _current()
    if args.name not in layout.computes:
        raise NoSuch(what=f'hypervisor {args.name}',
                     known=', '.join(layout.computes))
    return _run(layout, layout.namespace(args.name), 'admin', [
        process.script('virtco-edge'), '--config-file',
        str(layout.config(f'edge-{args.name}')), *args.words])


def _demo(args: argparse.Namespace, out: console.Console) -> int:
    layout = _current()
    from virtco_lab.cloud import demo
    return demo.show(layout, out)


def _keep(args: argparse.Namespace, _out: console.Console) -> int:
    return keeper.keep(args.computes, args.slots, args.rate, _PROGRESS,
                       args.backend)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog='tools/cloud', description=__doc__.replace('``', ''))
    actions = parser.add_subparsers(dest='action', required=True,
                                    metavar='ACTION')
    up = actions.add_parser('up', help='start it')
    # ``up`` runs ``keep`` in the background; people do not, so it has no help.
    for action, function in ((up, _up), (actions.add_parser('keep'), _keep)):
        action.set_defaults(run=function)
        count = arguments.between(1, 64)
        action.add_argument('--computes', type=count, default=6,
                            help='hypervisors (%(default)s; 1 to 64)')
        action.add_argument('--slots', type=count, default=2,
                            help='VMs for each (%(default)s)')
        action.add_argument('--rate', type=arguments.rate_bps,
                            default='50Mbit/s',
                            help='of each uplink (%(default)s)')
        action.add_argument('--backend', choices=('bridge', 'ovn'),
                            default='bridge',
                            help='what switches (%(default)s)')
    actions.add_parser('down', help='end it; nothing is left').set_defaults(
        run=_down)
    actions.add_parser(
        'demo', help='launch groups, send their bytes, show CCTs'
    ).set_defaults(run=_demo)
    for name, text in (('openstack', "the cloud's openstack client"),
                       ('virtco', "the cloud's virtco client"),
                       ('exec', 'any command in the control namespace')):
        action = actions.add_parser(name, help=text, prefix_chars='\0')
        action.set_defaults(run=_exec, user='admin')
        action.add_argument('words', nargs='*')
    for name, function, text in (
            ('vm', _vm, 'any command in a VM'),
            ('edge', _edge, "a hypervisor's virtco-edge, as in: edge h1 "
                            '--show')):
        action = actions.add_parser(name, help=text, prefix_chars='\0')
        action.set_defaults(run=function)
        action.add_argument('name')
        action.add_argument('words', nargs='*')
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run ``tools/cloud``; return its exit code."""
    args = _parser().parse_args(argv)
    out = console.Console()
    if os.geteuid():
        out.print('tools/cloud makes network namespaces: run it as root.')
        return 1
    try:
        return int(args.run(args, out))
    except exception.VirtcoException as error:
        out.print(str(error), highlight=False, markup=False)
        return 1


if __name__ == '__main__':
    sys.exit(main())
