# SPDX-License-Identifier: Apache-2.0

"""``virtco-edge``: runs the agent; ``--show``, ``--check``, ``--cleanup``."""

import signal
import sys
import time

from oslo_config import cfg
from oslo_log import log as logging

from edge_module import agent as edge_agent
from edge_module import edge_options as edge_conf
from edge_module import enforcer as edge_enforcer
from edge_module import factory
from edge_module import kept_state as state
from edge_module import kernel_events
from edge_module import netns_lock
from edge_module import own_tests
from edge_module import policy_ttl
from edge_module import show
from edge_module.ports import port_source as ports_base
from edge_module.privileged import choice
from edge_module.privileged import kernel_calls as kernel
from virtco import configuration
from virtco import exception
from virtco import systemd
from virtco.wire.health import Problem

LOG = logging.getLogger(__name__)

_SHOW_S = 1.0
# They have a line for every message; ``debug`` is about this module.
_QUIET = ['asyncio=WARNING', 'pyroute2=WARNING', 'ovsdbapp=INFO',
          'ovs=WARNING', 'oslo_privsep=INFO']

CLI_OPTS = [
    cfg.BoolOpt('check', default=False, help="""
Test options, uplinks, listeners, state_dir, Open vSwitch and certificates,
compare the kernel with the saved policy, print problems and differences, and
exit: 0 without an error or a difference, else 1. Changes nothing.
"""),
    cfg.BoolOpt('show', default=False, help="""
Print every class with its configured rate and the rate observed over one
second, and exit.
"""),
    cfg.BoolOpt('cleanup', default=False, help="""
Remove every trace of the edge module from the kernel, and nothing else, and
exit. Fails while the agent runs.
"""),
]


def main(argv: list[str] | None = None) -> int:
    """Run ``virtco-edge``; return its exit code."""
    # oslo.privsep would load it because it is there, and nothing uses it.
    sys.modules.setdefault('eventlet', None)  # type: ignore[arg-type]
    conf = cfg.CONF
    logging.register_options(conf)
    logging.set_defaults(
        default_log_levels=logging.get_default_log_levels() + _QUIET)
    edge_conf.register_opts(conf)
    conf.register_cli_opts(CLI_OPTS)
    try:
        configuration.read(conf, sys.argv[1:] if argv is None else argv,
                           edge_conf.list_opts(), prog='virtco-edge')
        configuration.set_up_log(conf, 'virtco-edge')
    except exception.ConfigInvalid as error:
        configuration.cannot_start('virtco-edge', error)
        return 2
    try:
        if conf.cleanup:
            return _cleanup(conf)
        if conf.show:
            return _show(conf)
        if conf.check:
            return _check(conf)
        return _run(conf)
    except exception.VirtcoException as error:
        print(f'virtco-edge: {error}', file=sys.stderr)
        return 2


def _run(conf: cfg.ConfigOpts) -> int:
    # Before privileges are given up, which the announcements ask for.
    kernel_watch = kernel_events.KernelWatch()
    with netns_lock.hold():
        parts = factory.Parts(conf, choice.open_kernel(
            conf.edge.user, conf.edge.helper_user))
        for find in (own_tests.problems, own_tests.listeners):
            configuration.tell(find(conf), LOG.log)
        systemd.notify(STATUS='Waiting for the virtual switch')
        parts.wait_ready()
        agent = edge_agent.Agent(conf, parts.enforcer(), parts.ports,
                                 kernel_watch)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: agent.stop())
        return 0 if agent.run() else 1


def _saved_enforcer(conf: cfg.ConfigOpts) -> edge_enforcer.Enforcer:
    """Make an enforcer with the policy that the agent saved."""
    parts = factory.Parts(conf, kernel)
    enforcer = parts.enforcer()
    held = policy_ttl.HeldPolicy(conf.edge.host,
                                 state.StateDir(conf.edge.state_dir,
                                                makes=False))
    policy = held.load()
    ports = ports_base.with_devices(parts.ports.read(),
                                    parts.ports.is_switched)
    for one in enforcer.uplinks:
        one.policy, one.n_past, one.ports = policy, held.n_past, ports
    return enforcer


def _show(conf: cfg.ConfigOpts) -> int:
    enforcer = _saved_enforcer(conf)
    before = [one.uplink.snapshot() for one in enforcer.uplinks]
    start_s = time.monotonic()
    time.sleep(_SHOW_S)
    print(show.policy_lines(enforcer))
    for one, first in zip(enforcer.uplinks, before):
        after = one.uplink.snapshot()
        if one.is_further:
            print(f'{one.uplink.dev}:')
        print(show.table(show.rows(
            enforcer.policy, enforcer.ports or (), first, after,
            time.monotonic() - start_s)))
    for port in enforcer.ports or ():
        for note in port.notes:
            print(f'{port.dev} of {port.vm}: {note}')
    return 0


def _check(conf: cfg.ConfigOpts) -> int:
    def say(_level: int, text: str) -> None:
        print(text)

    is_broken = configuration.tell(own_tests.problems(conf), say)
    if not netns_lock.is_held():
        is_broken |= configuration.tell(own_tests.listeners(conf), say)
    try:
        drift = show.drift(_saved_enforcer(conf))
    except exception.OvsUnavailable as error:
        configuration.tell([Problem('VC-092', str(error))], say)
        return 1
    print('\n'.join(drift or ['The kernel holds what the policy says.']))
    return 1 if drift or is_broken else 0


def _cleanup(conf: cfg.ConfigOpts) -> int:
    with netns_lock.hold():
        removed = factory.Parts(conf, kernel).enforcer().cleanup()
    print('Removed: ' + (', '.join(removed) or 'nothing, there was none'))
    return 0


if __name__ == '__main__':
    sys.exit(main())
