# SPDX-License-Identifier: Apache-2.0

"""``virtco-controller``: the REST API, the scheduler and the distributor.

The port opens first; what answers behind it is imported by another thread.
The programs that are one part of it start from here, too.
"""

import dataclasses
import functools
import gc
import logging
import os
import signal
import socket
import sys
import threading
from typing import Any
from typing import TYPE_CHECKING

from oslo_config import cfg
from oslo_log import log
from oslo_policy import opts as policy_opts
import waitress

from virtco import configuration
from virtco import exception
from virtco import startup
from virtco.api import front
from virtco.api import listeners
from virtco.cmd import entry
from virtco.conf import opts

if TYPE_CHECKING:
    from virtco import app
    from virtco.distribute import relay

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """Duties of a process.

    :ivar serves: the REST API; others tell by HTTP how they are only.
    :ivar schedules: whether it may lead, and listens for edge modules.
    """

    name: str
    serves: bool
    schedules: bool

    def listens_on(self, conf: cfg.ConfigOpts) -> dict[str, tuple[str, int]]:
        """Return host and port of each HTTP listener by its purpose."""
        if self.serves:
            return listeners.addresses(conf)
        port = conf.monitoring.port
        if port is None:
            port = SCHEDULER_PORT if self.schedules else DISTRIBUTOR_PORT
        return {'monitoring': (str(conf.monitoring.host), int(port))}


#: Ports of those that serve no REST API, unless ``[monitoring] port`` is set.
SCHEDULER_PORT = 8794
DISTRIBUTOR_PORT = 8795
#: How waitress serves. A launch on 1,000 hosts comes in one piece, not in 20.
#: A client that hangs up frees the thread that waits for it.
SERVER = {'recv_bytes': 1 << 18, 'channel_request_lookahead': 1,
          'asyncore_use_poll': True}
CONTROLLER = Program('virtco-controller', True, True)
API = Program('virtco-api', True, False)
SCHEDULER = Program('virtco-scheduler', False, True)
DISTRIBUTOR = Program('virtco-distributor', False, False)


# oslo.db logs every failed statement with its stack, on top of the line that
# this project logs about it. waitress warns of each request that waits for a
# thread.
QUIET = ['oslo_db.sqlalchemy.exc_filters=CRITICAL',
         'alembic.runtime=WARNING', 'waitress.queue=ERROR']


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register all options, and levels of logs that suit them."""
    opts.register_opts(conf)
    log.register_options(conf)
    log.set_defaults(default_log_levels=log.get_default_log_levels() + QUIET)
    policy_opts.set_defaults(conf, 'policy.yaml')


def make_conf(argv: list[str], conf: cfg.ConfigOpts | None = None,
              **kwargs: Any) -> cfg.ConfigOpts:
    """Read the configuration; nothing is registered globally.

    :raises virtco.exception.ConfigInvalid:
    """
    conf = cfg.ConfigOpts() if conf is None else conf
    register_opts(conf)
    configuration.read(conf, argv, opts.list_opts(), **kwargs)
    return conf


def main(argv: list[str] | None = None,
         program: Program = CONTROLLER) -> int:
    """Run a program of the controller; return its exit code."""
    try:
        conf = make_conf(sys.argv[1:] if argv is None else argv,
                         prog=program.name)
        configuration.set_up_log(conf, 'virtco')
        if (program.serves and conf.api.auth_strategy == 'noauth'
                and conf.api.host not in listeners.LOOPBACK):
            LOG.warning('No authentication on %s: whoever reaches it is an '
                        'operator.', conf.api.host)
        loader = Loader(conf, program)
        server = _server(conf, program, loader.front)
    except exception.ConfigInvalid as error:
        configuration.cannot_start(program.name, error)
        return 1
    try:
        _stop_on_signal(loader)
        loader.start()
        server.run()
    except SystemExit:
        pass  # the signal came before the server ran
    finally:
        server.close()
        loader.stop()
    if loader.begins_anew:
        LOG.info('Beginning anew.')
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    return loader.exit_code


class Loader(threading.Thread):
    """Brings up everything behind the port, on a thread of its own.

    :ivar begins_anew: whether the process is to start again from nothing, for
        what it knew is not true any more.
    """

    def __init__(self, conf: cfg.ConfigOpts, program: Program = CONTROLLER):
        super().__init__(name='loader', daemon=True)
        self._conf = conf
        self._program = program
        self.begins_anew = False
        self._startup = startup.Startup()
        self.front = front.Front(self._startup)
        self.exit_code = 0
        self._rooms: app.App | relay.Relay | None = None
        self._bus: Any | None = None

    def run(self) -> None:
        """Load; a failure ends the process with one line in the log."""
        try:
            self._load()
            spare_libraries()
            return
        except ModuleNotFoundError as error:
            configuration.cannot_start(
                self._program.name, entry.missing(error, 'controller'))
        except (exception.VirtcoException, OSError, ValueError,
                cfg.Error) as error:
            configuration.cannot_start(self._program.name, error)
        except Exception:
            LOG.exception('%s cannot start.', self._program.name)
        self.exit_code = 1
        self._end()

    def _end(self) -> None:
        main_thread = threading.main_thread().ident
        assert main_thread is not None
        signal.pthread_kill(main_thread, signal.SIGTERM)

    def _begin_anew(self) -> None:
        """Start the process again, since another scheduler took over."""
        if not self.begins_anew:
            self.begins_anew = True
            self._end()

    def _load(self) -> None:
        if self._program == DISTRIBUTOR:
            self._load_distributor()
            return
        with self._startup.step('loading the API'):
            from virtco import app
            from virtco.api import deploy
            from virtco.api import health_report as health
            from virtco.follow import listener
        with self._startup.step('reading the database'):
            rooms = app.App(
                self._conf, self._startup, plans=self._program.serves,
                schedules=self._program.schedules)
            rooms.on_deposed = self._begin_anew
            rooms.start()
            self._rooms = rooms
        self.front.hand_over(
            deploy.application(self._conf, rooms) if self._program.serves
            else deploy.monitoring(health.Document(rooms)))
        if self._program.schedules:
            with self._startup.step('listening to Nova'):
                self._bus = listener.start(self._conf, rooms.follow)
        if self._program.serves:
            with self._startup.step('loading the planner'):
                rooms.place.load_planner(rooms.state.live.is_used())
        else:
            self._startup.ready()
        rooms.test_itself()

    def _load_distributor(self) -> None:
        with self._startup.step('looking for the scheduler'):
            from virtco.api import deploy
            from virtco.distribute import relay
            found = relay.Relay(self._conf)
            found.start()
            self._rooms = found
        self.front.hand_over(deploy.monitoring(found))
        self._startup.ready()

    def stop(self) -> None:
        self._startup.stopping()
        if self._bus is not None:
            self._bus.close()
        if self._rooms is not None:
            self._rooms.stop()


def spare_libraries() -> None:
    """Keep the garbage collector off lasting objects: looking through
    all that the libraries made takes as long as computing the policies.
    """
    gc.collect()
    gc.freeze()
    # No other thread runs during a pass: 1,000 hosts and 500 coflows take up
    # to 6 and 20 ms for the young generations, and 200 ms for all.
    gc.set_threshold(2_000, 10, 500)


def _server(conf: cfg.ConfigOpts, program: Program,
            application: front.Front) -> Any:
    """Open the program's sockets and create the HTTP server on them.

    :raises virtco.exception.ConfigInvalid: when it cannot listen.
    """
    addresses, found = program.listens_on(conf), {}
    for purpose, (host, port) in addresses.items():
        try:
            found[purpose] = socket.create_server(
                (host, port), backlog=1024, family=(
                    socket.AF_INET6 if ':' in host else socket.AF_INET))
        except OSError as error:
            raise exception.ConfigInvalid(
                why=f'{host} port {port}: {error}') from error
    ports = {purpose: one.getsockname()[1] for purpose, one in found.items()}
    # A single line with the API's address last: a program that waits for it
    # reads all addresses or none.
    LOG.info('Listening on %s.', '; '.join(reversed([
        f'{host}, port {ports[purpose]}'
        for purpose, (host, _) in addresses.items()])))
    channels: dict[int, Any] = {}
    server = waitress.create_server(
        listeners.Listeners(conf, application, ports) if program.serves
        else application, map=channels, sockets=list(found.values()),
        _dispatcher=listeners.Dispatcher(conf.api.threads),
        max_request_body_size=listeners.MAX_BODY_BYTES,
        max_request_header_size=listeners.MAX_HEADER_BYTES,
        # Never reached: each port has a limit of its own.
        connection_limit=(len(found) + 1) * listeners.MAX_CONNECTIONS,
        ident='virtco',
        channel_timeout=listeners.SILENCE_S,
        cleanup_interval=min(30, listeners.SILENCE_S), **SERVER)
    pieces = listeners.count_pieces()
    for listener in channels.values():
        if getattr(listener, 'accepting', False):
            listener.channel_class = functools.partial(
                listeners.Channel, conf.api.max_connections_per_address,
                pieces)
    return server


def _stop_on_signal(loader: Loader) -> None:
    """Let SIGTERM and SIGINT end waitress's loop, which runs in this thread.

    A second one breaks nothing off, but a process that was to begin anew ends.
    """
    def stop(_number: int, _frame: Any) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            # Not SIG_IGN, which the next program would inherit.
            signal.signal(number, end)
        raise SystemExit

    def end(_number: int, _frame: Any) -> None:
        loader.begins_anew = False

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)


if __name__ == '__main__':
    sys.exit(main())
