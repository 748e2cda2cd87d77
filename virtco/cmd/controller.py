# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""``virtco-controller``: the REST API and the scheduler loop."""

import gc
import logging
import signal
import sys
from typing import Any

from oslo_config import cfg
from oslo_log import log
from oslo_policy import opts as policy_opts
import waitress

from virtco.api import deploy
from virtco.conf import opts
from virtco.controller import service
from virtco import exception
from virtco.lifecycle import listener
from virtco import version

LOG = logging.getLogger(__name__)

LOOPBACK = ('127.0.0.1', '::1', 'localhost')


# oslo.db logs every failed statement with its stack, on top of the line that
# this project logs about it.
QUIET = ['oslo_db.sqlalchemy.exc_filters=CRITICAL',
         'alembic.runtime.migration=WARNING']


def register_opts(conf: cfg.ConfigOpts) -> None:
    opts.register_opts(conf)
    log.register_options(conf)
    log.set_defaults(default_log_levels=log.get_default_log_levels() + QUIET)
    policy_opts.set_defaults(conf, 'policy.yaml')


def make_conf(argv: list[str], conf: cfg.ConfigOpts | None = None,
              **kwargs: Any) -> cfg.ConfigOpts:
    """Read the configuration; nothing is registered globally."""
    conf = cfg.ConfigOpts() if conf is None else conf
    register_opts(conf)
    conf(argv, project='virtco', version=version.version_string(), **kwargs)
    return conf


def main(argv: list[str] | None = None) -> int:
    conf = make_conf(sys.argv[1:] if argv is None else argv,
                     prog='virtco-controller')
    log.setup(conf, 'virtco')
    if conf.api.auth_strategy == 'noauth' and conf.api.host not in LOOPBACK:
        LOG.warning('No authentication on %s: whoever reaches it is an '
                    'operator.', conf.api.host)
    try:
        controller = service.Controller(conf)
        controller.start()
        bus = listener.start(conf, controller)
        server = _server(conf, controller)
    except (exception.VirtcoException, OSError, ValueError) as error:
        LOG.error('The controller cannot start: %s', error)
        return 1
    spare_libraries()
    _stop_on_signal(controller)
    LOG.info('Listening on %s, port %s.', conf.api.host,
             server.effective_port)
    try:
        server.run()
    finally:
        server.close()
        if bus is not None:
            bus.stop()
        controller.stop()
    return 0


def spare_libraries() -> None:
    """Keep the garbage collector off what is there for good: looking through
    all that the libraries made takes as long as computing the policies.
    """
    gc.collect()
    gc.freeze()


def _server(conf: cfg.ConfigOpts, controller: service.Controller) -> Any:
    return waitress.create_server(
        deploy.application(conf, controller), host=conf.api.host,
        port=conf.api.port, threads=conf.api.threads,
        max_request_body_size=conf.api.max_body_bytes,
        connection_limit=conf.api.threads * 4, ident='virtco',
        # A client that hangs up frees the thread that waits for it.
        channel_request_lookahead=1, asyncore_use_poll=True)


def _stop_on_signal(controller: service.Controller) -> None:
    """SIGTERM and SIGINT end waitress's loop, which runs in this thread."""
    def stop(_number: int, _frame: Any) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        controller.wake_waiting()
        raise SystemExit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)


if __name__ == '__main__':
    sys.exit(main())
