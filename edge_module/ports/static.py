# SPDX-License-Identifier: Apache-2.0

"""Ports from a JSON file, for plain bridges and for test beds."""

import ipaddress
import os
import pathlib
from typing import Any

import msgspec

from edge_module.classify import classified as classify
from edge_module.ports import kinds
from edge_module.ports import port_source as base
from virtco import decoding
from virtco import exception
from virtco.wire import fields


class _File(msgspec.Struct, frozen=True):
    ports: list[Any]


class _Row(msgspec.Struct, frozen=True):
    vm: fields.Name
    dev: fields.Name
    mac: str | None = None
    ips: tuple[str, ...] | None = None
    vnic_type: str | None = None


_FILE: 'decoding.Decoder[_File]' = decoding.Decoder(_File, 'file')
_ROW: 'decoding.Decoder[_Row]' = decoding.Decoder(_Row, 'port')


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
            rows = _FILE.decode(pathlib.Path(self.path).read_bytes()).ports
        except FileNotFoundError:
            self.complaint = None
            return ()
        except (OSError, ValueError, exception.Invalid) as error:
            raise exception.Invalid(field='ports_file', value=self.path,
                                    limit=f'a readable JSON file ({error})'
                                    ) from error
        found, complaints = [], []
        for index, row in enumerate(rows):
            try:
                found.append(_port(_ROW.convert(row)))
            except exception.Invalid as error:
                complaints.append(f'ports[{index}]: {error}')
        self.complaint = '; '.join(complaints[:5]) or None
        return tuple(found)


def _port(row: _Row) -> classify.VmPort:
    try:
        ips = tuple(str(ipaddress.ip_address(ip)) for ip in row.ips or ())
    except ValueError as error:
        raise exception.Invalid(field='ips', value=row.ips,
                                limit='a list of IP addresses') from error
    return classify.VmPort(row.vm, row.dev, mac=row.mac or '', ips=ips,
                           notes=kinds.of_vnic_type(row.vnic_type or ''))
