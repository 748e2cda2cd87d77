# SPDX-License-Identifier: Apache-2.0

"""Contents of the configuration files of each service. Pure."""

from collections.abc import Mapping
import sys
from typing import Any

from virtco_lab.cloud import layout as layouts
from virtco_lab.emulation import process

Groups = process.Options


def account(layout: layouts.Layout, user: str) -> dict[str, Any]:
    """Return keystoneauth's options for a service's own account."""
    return {
        'auth_type': 'password', 'auth_url': f'{layout.url("keystone")}/v3',
        'username': user, 'password': layouts.PASSWORD,
        'project_name': 'service', 'user_domain_name': 'Default',
        'project_domain_name': 'Default', 'region_name': layouts.REGION}


def _token(layout: layouts.Layout, user: str) -> dict[str, Any]:
    return {**account(layout, user),
            'www_authenticate_uri': f'{layout.url("keystone")}/v3',
            'service_token_roles_required': 'true',
            'service_token_roles': 'service'}


def _logging(layout: layouts.Layout, name: str) -> dict[str, Any]:
    return {'log_file': layout.home / f'{name}.log', 'use_stderr': 'false'}


def _default(layout: layouts.Layout, name: str) -> dict[str, Any]:
    return {'state_path': layout.home / name, **_logging(layout, name)}


def paste(service: str, name: str = 'api-paste.ini') -> str:
    """Return the path to which a wheel installs a paste file."""
    return f'{sys.prefix}/etc/{service}/{name}'


def _lock(layout: layouts.Layout, name: str) -> dict[str, Any]:
    return {'lock_path': layout.home / name / 'lock'}


def keystone(layout: layouts.Layout, database: str) -> Groups:
    """Return the configuration of keystone."""
    keys = layout.home / 'keystone'
    return {'DEFAULT': _logging(layout, 'keystone'),
            'database': {'connection': database},
            'token': {'provider': 'fernet', 'expiration': 86400},
            'cache': {'enabled': 'true',
                      'backend': 'oslo_cache.dict'},
            'fernet_tokens': {'key_repository': keys / 'fernet'},
            'credential': {'key_repository': keys / 'credential'},
            'security_compliance': {'password_hash_rounds': 4},
            'identity': {'password_hash_rounds': 4}}


def placement(layout: layouts.Layout, database: str) -> Groups:
    return {'DEFAULT': _default(layout, 'placement'),
            'api': {'auth_strategy': 'keystone'},
            'placement_database': {'connection': database},
            'keystone_authtoken': _token(layout, 'placement')}


def glance(layout: layouts.Layout, database: str) -> Groups:
    """Return the configuration of glance, with images in a directory."""
    return {'DEFAULT': {**_logging(layout, 'glance'),
                        'enabled_backends': 'f:file', 'workers': 1},
            'database': {'connection': database},
            'glance_store': {'default_backend': 'f'},
            'f': {'filesystem_store_datadir': layout.home / 'glance'},
            'keystone_authtoken': _token(layout, 'glance'),
            'oslo_concurrency': _lock(layout, 'glance'),
            'paste_deploy': {
                'flavor': 'keystone',
                'config_file': paste('glance', 'glance-api-paste.ini')}}


def neutron(layout: layouts.Layout, database: str, broker: str) -> Groups:
    """Return the configuration of neutron with Linux bridges or OVN."""
    drivers, plugins, extensions = {
        'bridge': ('virtco_lab', '', ''),
        'ovn': ('ovn', 'ovn-router,qos', 'port_security,qos'),
    }[layout.backend]
    return {'DEFAULT': {**_default(layout, 'neutron'), 'core_plugin': 'ml2',
                        'service_plugins': plugins, 'transport_url': broker,
                        'auth_strategy': 'keystone',
                        'api_paste_config': paste('neutron'),
                        'notify_nova_on_port_status_changes': 'false',
                        'notify_nova_on_port_data_changes': 'false'},
            'database': {'connection': database},
            'keystone_authtoken': _token(layout, 'neutron'),
            'oslo_concurrency': _lock(layout, 'neutron'),
            'ml2': {'type_drivers': 'flat,geneve',
                    'tenant_network_types': 'geneve',
                    'mechanism_drivers': drivers,
                    'extension_drivers': extensions},
            'ml2_type_geneve': {'vni_ranges': '1:65535',
                                'max_header_size': 38},
            'ovn': {f'ovn_{name}_connection': layout.ovsdb(name)
                    for name in ('nb', 'sb')},
            'quotas': {'quota_port': -1}}


def nova(layout: layouts.Layout, database: str, api_database: str,
         broker: str) -> Groups:
    """Return the configuration that all services of Nova share."""
    return {
        'DEFAULT': {**_default(layout, 'nova'), 'transport_url': broker,
                    'my_ip': layout.address,
                    'compute_driver': 'virtco_lab.NamespaceDriver',
                    # A slot is a VM; nothing is shared.
                    'cpu_allocation_ratio': 1.0,
                    'osapi_compute_workers': 1},
        'api': {'auth_strategy': 'keystone'},
        'wsgi': {'api_paste_config': paste('nova')},
        'database': {'connection': database},
        'api_database': {'connection': api_database},
        'keystone_authtoken': _token(layout, 'nova'),
        'service_user': {**account(layout, 'nova'),
                         'send_service_user_token': 'true'},
        'placement': account(layout, 'nova'),
        'glance': account(layout, 'nova'),
        'neutron': account(layout, 'nova'),
        'conductor': {'workers': 1},
        'scheduler': {'workers': 2},
        'quota': {name: 100_000 for name in ('instances', 'cores', 'ram')},
        'oslo_concurrency': _lock(layout, 'nova'),
        'vnc': {'enabled': 'false'},
        'notifications': {'notification_format': 'both'},
        'oslo_messaging_notifications': {'driver': 'messagingv2'},
        'filter_scheduler': {
            'available_filters': [
                'nova.scheduler.filters.all_filters',
                'nova_filters.coflow_filter.CoflowFilter'],
            'enabled_filters': 'ComputeFilter,ComputeCapabilitiesFilter,'
                               'ImagePropertiesFilter,CoflowFilter',
            'weight_classes': 'nova.scheduler.weights.all_weighers,'
                              'nova_filters.coflow_weigher.CoflowWeigher'},
        'virtco': {'controller_url': layout.controller_url,
                   'cafile': layout.ca_file,
                   # All of a cloud's processes share this machine.
                   'timeout_ms': 10_000, 'request_budget_ms': 30_000,
                   **account(layout, 'nova')}}


def controller(layout: layouts.Layout, number: int, database: str,
               broker: str) -> Groups:
    """Return the configuration of a controller behind haproxy."""
    name = f'controller{number}'
    return {
        'DEFAULT': _logging(layout, name),
        'api': {'host': layout.address, 'port': controller_port(number),
                'auth_strategy': 'keystone', 'ui': 'true'},
        'distributor': {'host': layout.address,
                        'port': controller_port(number) + 1},
        'controller': {'state_dir': layout.home / name},
        'database': {'connection': database},
        'placement': {'budget_s': 1, 'deadline_s': 8},
        'notifications': {'transport_url': broker},
        'keystone_authtoken': _token(layout, 'virtco'),
        'nova': {**account(layout, 'virtco'), 'compare_interval_s': 10}}


def controller_port(number: int) -> int:
    """Return the port of a controller's API.

    Its distributor listens at the next one.

    :param number: number of the controller, from 0.
    """
    return layouts.CONTROLLER_PORT + 1000 * (1 + number)


def haproxy(layout: layouts.Layout, controllers: int) -> str:
    """Return haproxy's configuration.

    It terminates TLS and balances over the controllers that are healthy.

    :param controllers: their number.
    """
    certificate = layout.home / 'tls' / 'server.pem'
    servers = '\n'.join(
        f'    server c{number} {layout.address}:{controller_port(number)} '
        'check inter 1s fall 2 rise 1' for number in range(controllers))
    return f'''global
    maxconn 4096
defaults
    mode http
    timeout connect 2s
    timeout client 120s
    timeout server 120s
    option redispatch
    retries 2
frontend virtco
    bind {layout.address}:{layouts.CONTROLLER_PORT} ssl crt {certificate}
    default_backend controllers
backend controllers
    option httpchk GET /health
    http-check expect status 200
{servers}
'''


def edge(layout: layouts.Layout, host: str, address: str) -> Groups:
    """Return the configuration of the edge module of a hypervisor."""
    ports: Mapping[str, Mapping[str, Any]] = {
        'bridge': {'ports_file': layout.ports_file(host)},
        'ovn': {'ports_backend': 'ovs',
                'ovsdb_connection': layout.ovsdb(host)}}
    return {
        'DEFAULT': _logging(layout, f'edge-{host}'),
        'edge': {'host': host, 'controller_url': layout.controller_url,
                 'uplink_dev': 'uplink0',
                 'link_egress_bps': round(layout.rate_bps),
                 'link_ingress_bps': round(layout.rate_bps),
                 # The fabric's limits count a frame's own bytes.
                 'wire_overhead_bytes': 0,
                 **ports[layout.backend],
                 'state_dir': layout.home / f'edge-{host}'},
        'probe': {'address': address},
        'controller_auth': {**account(layout, host),
                            'cafile': layout.ca_file}}
