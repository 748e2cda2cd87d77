# SPDX-License-Identifier: Apache-2.0

"""The controller's REST API as the edge module uses it."""

import json
import time
from typing import Any
import urllib.parse

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exception
from keystoneauth1 import loading as ks_loading
from keystoneauth1 import noauth
from keystoneauth1 import session as ks_session
import msgspec
from oslo_config import cfg
import requests
import urllib3

from edge_module import conf as edge_conf
from virtco import exception
from virtco.know import reports

# A million flows take less than 200 bytes each.
MOST_BYTES = 256 * 1024 * 1024
_JSON = {'Content-Type': 'application/json', 'Accept': 'application/json'}


def _direct_pool(session: ks_session.Session, url: str
                 ) -> urllib3.HTTPConnectionPool | None:
    """Connections with the session's TLS settings.

    None behind a proxy, and where requests is older than 2.32.
    """
    http = session.session
    settings = http.merge_environment_settings(
        url, {}, None, session.verify, session.cert)
    connect = getattr(http.get_adapter(url),
                      'get_connection_with_tls_context', None)
    if connect is None or requests.utils.select_proxy(
            url, settings['proxies']):
        return None
    pool: urllib3.HTTPConnectionPool = connect(
        requests.Request('PUT', url).prepare(), settings['verify'],
        cert=settings['cert'])
    return pool


class EdgeClient:
    """One connection to the controller; each thread has its own.

    Every method raises :class:`virtco.exception.ControllerUnavailable` when
    there is no answer in time, or none that makes sense, and
    :class:`virtco.exception.NotFound` for what the controller does not know.
    """

    def __init__(self, conf: cfg.ConfigOpts):
        self.url = conf.edge.controller_url.rstrip('/')
        self.timeout_s = conf.edge.http_timeout_s
        #: Of the scheduler whose policy was asked for last; None where the
        #: controller is of a release that has none.
        self.epoch: int | None = None
        self._host = '/v1/hosts/' + urllib.parse.quote(conf.edge.host, '')
        auth = None
        if conf[edge_conf.AUTH].auth_type:
            auth = ks_loading.load_auth_from_conf_options(
                conf, edge_conf.AUTH)
        session = ks_loading.load_session_from_conf_options(
            conf, edge_conf.AUTH,
            auth=auth or noauth.NoAuth(endpoint=self.url))
        self._session = session
        self._adapter = adapter.Adapter(
            session, endpoint_override=self.url, connect_retries=0)
        self._pool = _direct_pool(session, self.url)
        self._path = urllib.parse.urlsplit(self.url).path

    def get_policy(self, etag: str | None, wait_s: float
                   ) -> tuple[str | None, Any] | None:
        """The policy document with its ETag; None when it is unchanged.

        :raises virtco.exception.NotFound: the controller has not heard of
            this host, which a report changes.
        """
        headers = {'Prefer': f'wait={wait_s:g}'}
        if etag is not None:
            headers['If-None-Match'] = etag
        answer = self._call('GET', f'{self._host}/policy', wait_s,
                            headers=headers, stream=True)
        body = self._read(answer)
        epoch = answer.headers.get('Virtco-Epoch', '')
        self.epoch = int(epoch) if epoch.isdecimal() else None
        if answer.status_code == 304:
            return None
        return answer.headers.get('ETag'), self._decode(body)

    def _read(self, answer: requests.Response) -> bytes:
        """The body of a streamed answer, unless it is too long."""
        body = bytearray()
        try:
            for part in answer.iter_content(1 << 16):
                body += part
                if len(body) > MOST_BYTES:
                    answer.close()
                    raise exception.ControllerUnavailable(
                        url=self.url, why='the answer has more than '
                        f'{MOST_BYTES} bytes')
        except requests.RequestException as error:
            raise exception.ControllerUnavailable(
                url=self.url, why=exception.reason(error)) from error
        return bytes(body)

    def put_report(self, report: reports.Report) -> None:
        """Deliver a report.

        What goes well, which is nearly always, goes past the two upper
        libraries: they take several times as long as the rest.
        """
        # A connection keeps the order of what it carries; of requests, one
        # that was given up may be the last to be taken in.
        numbered = msgspec.structs.replace(
            report, boot_ms=time.clock_gettime_ns(
                time.CLOCK_BOOTTIME) // 1_000_000)
        path, body = f'{self._host}/report', msgspec.json.encode(numbered)
        if self._pool is None or not self._put(path, body):
            self._call('PUT', path, 0.0, data=body, headers=_JSON)

    def _put(self, path: str, body: bytes) -> bool:
        """Whether the controller accepted it."""
        assert self._pool is not None
        try:
            tokens = self._session.get_auth_headers() or {}
            answer = self._pool.urlopen(
                'PUT', self._path + path, body, {**_JSON, **tokens},
                retries=False, redirect=False, timeout=self.timeout_s)
        except (ks_exception.ClientException,
                urllib3.exceptions.HTTPError) as error:
            raise exception.ControllerUnavailable(
                url=self.url, why=exception.reason(error)) from error
        return 200 <= answer.status < 300

    def get_distributor(self) -> dict[str, Any]:
        """Where its distributor listens.

        :raises virtco.exception.NotFound: it has none.
        """
        answer = self._call('GET', '/v1/distributor', 0.0)
        found: dict[str, Any] = self._decode(answer.content)
        return found

    def get_probe(self, wait_s: float) -> dict[str, Any] | None:
        """The next packet train to send, or None."""
        answer = self._call('GET', f'{self._host}/probes', wait_s,
                            headers={'Prefer': f'wait={wait_s:g}'})
        return (None if answer.status_code == 204
                else self._decode(answer.content))

    def post_measurement(self, measurement: dict[str, Any]) -> None:
        self._call('POST', '/v1/measurements', 0.0, json=measurement)

    def _call(self, method: str, path: str, wait_s: float, **kwargs: Any
              ) -> Any:
        try:
            return self._adapter.request(
                path, method, timeout=self.timeout_s + wait_s, **kwargs)
        except ks_exception.NotFound as error:
            raise exception.NotFound(what=method, id=path) from error
        except ks_exception.ClientException as error:
            raise exception.ControllerUnavailable(
                url=self.url, why=exception.reason(error)) from error

    def _decode(self, body: bytes) -> Any:
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            why = ('is nested too deep' if isinstance(error, RecursionError)
                   else 'is not JSON')
            raise exception.ControllerUnavailable(
                url=self.url, why=f'the answer {why}') from error
