# SPDX-License-Identifier: Apache-2.0

"""The HTTP connection to the controller."""

from concurrent import futures
import json
import threading
import time
from typing import Any

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exceptions
from keystoneauth1 import loading
from keystoneauth1 import noauth
from oslo_config import cfg
import requests

from nova_filters import plugin_options as virtco_conf
from virtco import exception

#: An answer for 20,000 candidate hosts is about half of it.
MAX_ANSWER_BYTES = 8 * 2 ** 20
#: Calls that may be under way at once; each has its own thread.
MAX_CALLS = 64


class Unanswered(exception.ControllerUnavailable):
    """No complete HTTP answer came in time."""


class Refused(exception.ControllerUnavailable):
    """The answer is an error, or it breaks the contract.

    Its ``kwargs`` hold the HTTP ``status`` of an error.
    """


class Connection:
    """Thread-safe; keeps connections to the controller open."""

    def __init__(self, conf: cfg.ConfigOpts):
        group = virtco_conf.GROUP
        loading.register_auth_conf_options(conf, group)
        auth = loading.load_auth_from_conf_options(conf, group)
        options = conf[group]
        session = loading.session.Session().load_from_options(
            auth=auth or noauth.NoAuth(), insecure=options.insecure,
            cacert=options.cafile, cert=options.certfile,
            key=options.keyfile)
        self.url = options.controller_url.rstrip('/')
        self._adapter = adapter.Adapter(
            session, endpoint_override=self.url, raise_exc=False,
            user_agent='virtco-nova')
        self._calls = threading.BoundedSemaphore(MAX_CALLS)

    def send(self, method: str, path: str, body: Any, wait_s: float
             ) -> bytes:
        """Send JSON and return the body of a 2xx answer.

        Time-outs of sockets bound neither name resolution nor an answer that
        drips in; waiting for a thread does. One that is stuck is a daemon and
        holds one of MAX_CALLS places until its socket times out.

        :raises Unanswered: when no HTTP answer comes in time.
        :raises Refused: for a status other than 2xx or an endless body.
        """
        deadline = time.monotonic() + wait_s
        if not self._calls.acquire(timeout=wait_s):
            raise Unanswered(url=self.url,
                             why=f'{MAX_CALLS} calls are under way')
        outcome: futures.Future[bytes] = futures.Future()

        def run() -> None:
            try:
                outcome.set_result(self._send(method, path, body, wait_s))
            except Exception as error:
                outcome.set_exception(error)
            finally:
                self._calls.release()

        try:
            threading.Thread(target=run, daemon=True,
                             name='virtco-call').start()
        except RuntimeError as error:  # the system has no more threads
            self._calls.release()
            raise Unanswered(url=self.url, why=str(error)) from error
        try:
            return outcome.result(max(0.0, deadline - time.monotonic()))
        except futures.TimeoutError as error:
            raise Unanswered(url=self.url, why='timed out') from error

    def _send(self, method: str, path: str, body: Any, timeout_s: float
              ) -> bytes:
        """Send on this thread.

        :param timeout_s: bounds the time between two packets only.
        """
        try:
            with self._request(method, path, body, timeout_s) as response:
                content = response.raw.read(MAX_ANSWER_BYTES + 1,
                                            decode_content=True)
        except Exception as error:  # of keystoneauth, requests or urllib3
            raise Unanswered(url=self.url,
                             why=exception.reason(error)) from error
        if len(content) > MAX_ANSWER_BYTES:
            raise Refused(url=self.url,
                          why=f'more than {MAX_ANSWER_BYTES} bytes')
        if not 200 <= response.status_code < 300:
            raise Refused(url=self.url, status=response.status_code,
                          why=f'HTTP {response.status_code} '
                              f'{_detail(content)}')
        return content

    def _request(self, method: str, path: str, body: Any, timeout_s: float
                 ) -> requests.Response:
        """Send once more where the controller has just closed a kept
        connection. The name of two controllers may have an address that is
        dead: the next one has time left.
        """
        kwargs = dict(json=body, timeout=(timeout_s / 3, timeout_s),
                      stream=True, log=False)
        try:
            return self._adapter.request(path, method, **kwargs)
        except ks_exceptions.ConnectFailure:
            return self._adapter.request(path, method, **kwargs)


def _detail(content: bytes) -> str:
    """Return the controller's own words about an error, if these are any."""
    try:
        error = json.loads(content)['error']
        return exception.escaped(f'{error["code"]}: {error["detail"]}')[:300]
    except Exception:  # any other server's error page
        return repr(content[:80])
