# SPDX-License-Identifier: Apache-2.0

"""Names, ports and directories of the cloud."""

import dataclasses
import json
import pathlib

#: Directory of a running cloud.
HOME = pathlib.Path('/run/virtco-cloud')
PASSWORD = 'lab'
REGION = 'RegionOne'
PORTS = {'keystone': 5000, 'glance': 9292, 'nova': 8774, 'placement': 8778,
         'neutron': 9696}
PATHS = {'nova': '/v2.1'}
TYPES = {'keystone': 'identity', 'glance': 'image', 'nova': 'compute',
         'placement': 'placement', 'neutron': 'network', 'virtco': 'coflow'}
CONTROLLER_PORT = 8791
#: The network that the uplinks are in, as Neutron and OVN know it.
PHYSICAL_NETWORK = 'physnet1'
#: Variable that names the hypervisor that a nova-compute process is.
HOST = 'VIRTCO_CLOUD_HOST'


@dataclasses.dataclass(frozen=True)
class Layout:
    """Names, addresses and sizes of a cloud.

    :ivar run: id of its namespaces (:mod:`virtco_lab.emulation.namespaces`).
    :ivar address: address of the control namespace, where all services listen.
    :ivar computes: hypervisors.
    :ivar slots: VMs of flavor ``slot1`` per hypervisor.
    :ivar rate_bps: rate of each uplink.
    :ivar pid: id of the process that keeps the cloud.
    :ivar backend: kind of the switches and of Neutron's driver: ``bridge`` are
        Linux bridges, by :mod:`virtco_lab.cloud.mechanism`; ``ovn`` is OVN, by
        Neutron's own driver.
    """

    run: str
    address: str
    computes: tuple[str, ...]
    slots: int
    rate_bps: float
    pid: int
    home: pathlib.Path = HOME
    backend: str = 'bridge'

    @property
    def control(self) -> str:
        """Name of the network namespace in which all services listen."""
        return f'virtco-emu-{self.run}-control'

    def namespace(self, host: str) -> str:
        """Return the name of a hypervisor's network namespace."""
        return f'virtco-emu-{self.run}-{host}'

    def vm_namespace(self, uuid: str) -> str:
        """Return the name of the network namespace of a VM of Nova."""
        return f'virtco-emu-{self.run}-vm{uuid.replace("-", "")[:12]}'

    def ports_file(self, host: str) -> pathlib.Path:
        """Return the file in which a hypervisor's edge module finds its ports.

        With the backend ``ovn`` the edge module asks Open vSwitch instead.
        """
        return self.home / f'ports-{host}.json'

    def ovsdb(self, name: str) -> str:
        """Return where to connect to a database.

        :param name: a hypervisor, or ``nb`` or ``sb`` of OVN.
        """
        return f'unix:{self.home}/ovsdb-{name}/db.sock'

    def config(self, process: str) -> pathlib.Path:
        """Return the configuration file of a process, such as ``nova``."""
        return self.home / 'etc' / process / f'{process}.conf'

    def url(self, service: str) -> str:
        return (f'http://{self.address}:{PORTS[service]}'
                f'{PATHS.get(service, "")}')

    @property
    def controller_url(self) -> str:
        """Address of the controllers' API: haproxy, which terminates TLS."""
        return f'https://{self.address}:{CONTROLLER_PORT}'

    @property
    def ca_file(self) -> pathlib.Path:
        """CA certificate by which clients check the controllers' TLS."""
        return self.home / 'tls' / 'ca.pem'

    def environment(self, user: str = 'admin') -> dict[str, str]:
        """Return the variables with which the openstack client is a user."""
        return {
            'OS_AUTH_URL': f'{self.url("keystone")}/v3',
            'OS_USERNAME': user, 'OS_PASSWORD': PASSWORD,
            'OS_PROJECT_NAME': user, 'OS_USER_DOMAIN_NAME': 'Default',
            'OS_PROJECT_DOMAIN_NAME': 'Default', 'OS_REGION_NAME': REGION,
            'OS_IDENTITY_API_VERSION': '3', 'OS_CACERT': str(self.ca_file),
            'OS_COMPUTE_API_VERSION': '2.100', 'NO_PROXY': '*',
            'no_proxy': '*'}

    def save(self) -> None:
        fields = dataclasses.asdict(self) | {'home': str(self.home)}
        fresh = self.home / 'cloud.new'
        fresh.write_text(json.dumps(fields))
        fresh.replace(self.home / 'cloud.json')


def load(home: pathlib.Path = HOME) -> Layout | None:
    """Load the layout of the cloud that is up; None where there is none.

    The file is left behind when the cloud's keeper was killed.
    """
    try:
        fields = json.loads((home / 'cloud.json').read_text())
    except FileNotFoundError:
        return None
    return Layout(**fields | {'home': pathlib.Path(fields['home']),
                              'computes': tuple(fields['computes'])})
