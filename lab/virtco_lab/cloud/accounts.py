# SPDX-License-Identifier: Apache-2.0

"""Users, endpoints, an image, a flavor and a network, by the SDK."""

from typing import Any

import openstack

from virtco_lab.cloud import layout as layouts

IMAGE, FLAVOR, NETWORK = 'tiny', 'slot1', 'lab'
TENANT = 'demo'


def connect(layout: layouts.Layout, user: str = 'admin') -> Any:
    """Log in to the cloud as a user whose project has the same name."""
    return openstack.connect(
        auth_url=f'{layout.url("keystone")}/v3', username=user,
        password=layouts.PASSWORD, project_name=user,
        user_domain_name='Default', project_domain_name='Default',
        region_name=layouts.REGION, cacert=str(layout.ca_file),
        load_yaml_config=False, load_envvars=False)


def add_accounts(layout: layouts.Layout) -> None:
    """Create users, projects and roles, and the services' endpoints."""
    cloud = connect(layout)
    identity = cloud.identity
    domain = 'default'
    project = identity.create_project(name='service', domain_id=domain)
    roles = {role.name: role for role in identity.roles()}
    for name in ('service', 'member', 'reader'):
        if name not in roles:
            roles[name] = identity.create_role(name=name)
    services = ('nova', 'placement', 'glance', 'neutron', 'virtco')
    tenant = identity.create_project(name=TENANT, domain_id=domain)
    # An edge module's user has the name of its host.
    for name, its_project, its_roles in (
            *((name, project, ('service', 'admin')) for name in services),
            *((name, project, ('service',)) for name in layout.computes),
            (TENANT, tenant, ('member',))):
        user = identity.create_user(
            name=name, password=layouts.PASSWORD, domain_id=domain)
        for role in its_roles:
            identity.assign_project_role_to_user(
                project=its_project, user=user, role=roles[role])
    for name, kind in layouts.TYPES.items():
        if name == 'keystone':
            continue
        url = (layout.controller_url if name == 'virtco'
               else layout.url(name))
        made = identity.create_service(name=name, type=kind)
        for interface in ('public', 'internal'):
            identity.create_endpoint(service_id=made.id, interface=interface,
                                     region_id=layouts.REGION, url=url)


def add_offers(layout: layouts.Layout) -> None:
    """Create the flavor, image and network that a tenant's servers use."""
    cloud = connect(layout)
    cloud.compute.create_flavor(name=FLAVOR, vcpus=1, ram=512, disk=1)
    image = cloud.image.create_image(
        name=IMAGE, disk_format='raw', container_format='bare',
        visibility='public', data=b'virtco')
    assert image.name == IMAGE
    network = cloud.network.create_network(
        name=NETWORK, shared=True, provider_network_type='flat',
        provider_physical_network=layouts.PHYSICAL_NETWORK)
    cloud.network.create_subnet(
        network_id=network.id, name=NETWORK, ip_version=4,
        cidr='10.64.0.0/16', enable_dhcp=False, gateway_ip=None)


def n_computes_up(layout: layouts.Layout) -> int:
    """Count the hypervisors that are up and known to placement."""
    cloud = connect(layout)
    up = {service.host for service in cloud.compute.services()
          if service.binary == 'nova-compute' and service.state == 'up'}
    known = {found.name for found in cloud.compute.hypervisors()}
    return len(up & known)
