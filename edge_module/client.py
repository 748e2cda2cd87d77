# SPDX-License-Identifier: Apache-2.0

"""Asks the controller's REST API where its distributors are."""

from typing import Any

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exception
from keystoneauth1 import loading as ks_loading
from keystoneauth1 import noauth
from keystoneauth1 import session as ks_session
from oslo_config import cfg

from edge_module import conf as edge_conf
from virtco import exception


class EdgeClient:
    def __init__(self, conf: cfg.ConfigOpts):
        self.url = conf.edge.controller_url.rstrip('/')
        auth = None
        if conf[edge_conf.AUTH].auth_type:
            auth = ks_loading.load_auth_from_conf_options(
                conf, edge_conf.AUTH)
        session: ks_session.Session = (
            ks_loading.load_session_from_conf_options(
                conf, edge_conf.AUTH,
                auth=auth or noauth.NoAuth(endpoint=self.url)))
        self._adapter = adapter.Adapter(
            session, endpoint_override=self.url, connect_retries=0)
        self._timeout_s = conf.edge.http_timeout_s

    def get_distributor(self, host: str) -> dict[str, Any]:
        """Where edge modules connect to, and perhaps this host's ticket.

        :raises virtco.exception.ControllerUnavailable: when there is no
            answer in time, none that makes sense, or no distributor.
        """
        try:
            found: dict[str, Any] = self._adapter.get(
                '/v1/distributor', params={'host': host},
                timeout=self._timeout_s).json()
        except ks_exception.NotFound as error:
            raise exception.ControllerUnavailable(
                url=self.url, why='it has no distributor') from error
        except (ks_exception.ClientException, ValueError,
                RecursionError) as error:
            raise exception.ControllerUnavailable(
                url=self.url, why=exception.reason(error)) from error
        return found
