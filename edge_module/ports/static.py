# SPDX-License-Identifier: Apache-2.0

"""Ports from a JSON file, for plain bridges and for test beds."""

import ipaddress
import json
import os
from typing import Any

from edge_module.classify import classified as classify
from edge_module.ports import kinds
from edge_module.ports import port_source as base
from virtco import exception


class StaticPorts(base.PortSource):
    """Reads ``{"ports": [{"vm", "dev", "mac", "ips", "vnic_type"}]}``.

    Write it to another name and rename it over: a half-written file is
    refused, with the ports before it kept. A port that makes no sense is left
    out, and the complaint names it.
    """

    def __init__(self, path: str):
        self.path = path

    def token(self) -> object:
        try:
            status = os.stat(self.path)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def read(self) -> tuple[classify.VmPort, ...]:
        try:
            with open(self.path) as file:
                document = json.load(file)
        except FileNotFoundError:
            return ()
        except (OSError, ValueError) as error:
            raise exception.Invalid(field='ports_file', value=self.path,
                                    limit=f'a readable JSON file ({error})'
                                    ) from error
        rows = document.get('ports') if isinstance(document, dict) else None
        if not isinstance(rows, list):
            raise exception.Invalid(field='ports_file', value=self.path,
                                    limit='a JSON object with a list "ports"')
        found, complaints = [], []
        for index, row in enumerate(rows):
            try:
                found.append(_port(row, f'ports[{index}]'))
            except exception.Invalid as error:
                complaints.append(str(error))
        self.complaint = '; '.join(complaints[:5]) or None
        return tuple(found)


def _port(row: Any, field: str) -> classify.VmPort:
    if not isinstance(row, dict):
        raise exception.Invalid(field=field, value=row,
                                limit='a JSON object')
    for key in ('vm', 'dev'):
        if not isinstance(row.get(key), str) or not row[key]:
            raise exception.Invalid(field=f'{field}.{key}',
                                    value=row.get(key),
                                    limit='a text that is not empty')
    try:
        ips = tuple(str(ipaddress.ip_address(ip))
                    for ip in row.get('ips') or ())
    except (ValueError, TypeError) as error:
        raise exception.Invalid(field=f'{field}.ips', value=row.get('ips'),
                                limit='a list of IP addresses') from error
    return classify.VmPort(vm=row['vm'], dev=row['dev'],
                           mac=str(row.get('mac') or ''), ips=ips,
                           notes=kinds.of_vnic_type(
                               str(row.get('vnic_type') or '')))
