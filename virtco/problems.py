# SPDX-License-Identifier: Apache-2.0

"""Codes of the problems that virtco finds in itself and around it. Pure.

``/health`` and ``virtco doctor`` name a problem by its code; the page on
troubleshooting has an entry of each. A code keeps its meaning for ever.
"""

import dataclasses

OK, WARNING, ERROR = 'ok', 'warning', 'error'
#: Entry of a code on the page on troubleshooting.
_ENTRY = ('https://docs.openstack.org/virtco/latest/admin/'
          'troubleshooting.html#term-')


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """Kind of problem.

    :ivar link: part of the chain from a hint to a class that is broken.
    :ivar state: ``error`` where something does not work, else ``warning``.
    :ivar title: the finding where nothing more is known.
    :ivar action: the first thing to do about it.
    """

    link: str
    state: str
    title: str
    action: str


KINDS = {
    'VC-001': Kind('configuration', ERROR, 'the file cannot be read',
                   'Name a readable file of sections and options in UTF-8.'),
    'VC-002': Kind('configuration', ERROR, 'an option has a bad value',
                   'Set a value within the limit that the finding names.'),
    'VC-003': Kind('configuration', WARNING, 'an option is unknown',
                   'Correct its name; it has no effect.'),
    'VC-004': Kind('configuration', WARNING, 'a section is unknown',
                   'Correct its name; its options have no effect.'),
    'VC-010': Kind('ports', ERROR, 'an address cannot be listened on',
                   'ss -ltnp names the process on a port that is taken.'),
    'VC-020': Kind('database', ERROR, 'the database does not answer',
                   'Compare [database] connection with the server.'),
    'VC-021': Kind('database', ERROR, 'the database takes no write',
                   'Make the file or the server writable.'),
    'VC-022': Kind('database', ERROR, 'the disk of the database is full',
                   'Make room below [controller] state_dir.'),
    'VC-023': Kind('database', ERROR, 'the schema is of another version',
                   'virtco-manage db sync'),
    'VC-030': Kind('token', ERROR, 'keystone does not answer',
                   'Compare auth_url with the catalogue of services.'),
    'VC-031': Kind('token', ERROR, 'keystone grants no token',
                   'Correct the user, the password or the project.'),
    'VC-032': Kind('token', ERROR, 'the way to log in is incomplete',
                   'Set the options that the finding names.'),
    'VC-033': Kind('token', ERROR, 'a file for TLS cannot be read',
                   'Correct the path, or let the user virtco read the file.'),
    'VC-040': Kind('TLS', ERROR, 'a file of the certificate cannot be read',
                   'Correct the path, or let the user virtco read the file.'),
    'VC-041': Kind('TLS', ERROR, 'key and certificate do not fit',
                   'Install the key of the certificate.'),
    'VC-042': Kind('TLS', ERROR, 'the certificate has ended',
                   'Renew it; it is read again without a restart.'),
    'VC-043': Kind('TLS', WARNING, 'the certificate ends soon',
                   'Renew it; it is read again without a restart.'),
    'VC-050': Kind('controller', ERROR, 'it does not answer',
                   'Start it; compare --controller-url with its address.'),
    'VC-051': Kind('controller', WARNING, 'it is starting',
                   'Wait; its log names each step.'),
    'VC-052': Kind('controller', WARNING, 'it is in shadow mode: it decides, '
                   'and changes nothing',
                   'Remove [placement] mode to let it act.'),
    'VC-053': Kind('controller', ERROR, 'a part of it does not work',
                   "The controller's log has the reason."),
    'VC-054': Kind('controller', ERROR, 'no edge module can connect',
                   'ss -ltnp names the process on [distributor] port.'),
    'VC-060': Kind('nova-scheduler', WARNING, 'has asked for no group yet',
                   'Enable CoflowFilter and CoflowWeigher in nova.conf, and '
                   'check [virtco] controller_url; nova-scheduler logs why it '
                   'goes without virtco.'),
    'VC-061': Kind('nova-scheduler', WARNING, 'hints were ignored',
                   'Tell the tenant of virtco hint check.'),
    'VC-062': Kind('nova-scheduler', WARNING, 'built VMs on other hosts',
                   'Look for failing builds, for weighers with larger '
                   'multipliers, and for host_subset_size above 1.'),
    'VC-063': Kind('notifications', WARNING, 'planned VMs do not run',
                   'If the VMs are active, notifications do not arrive: check '
                   "Nova's [oslo_messaging_notifications] driver and the "
                   "controller's transport_url."),
    'VC-064': Kind('hypervisors', WARNING, 'shown to operators only',
                   'Ask with their account.'),
    'VC-065': Kind('hypervisors', ERROR, 'none has reported',
                   'Start virtco-edge; virtco-edge --check tells what is '
                   'wrong on a hypervisor.'),
    'VC-066': Kind('hypervisors', ERROR, 'some are silent',
                   'systemctl status virtco-edge on the host.'),
    'VC-067': Kind('hypervisors', ERROR, 'the kernel does not hold a policy',
                   'virtco host show HOST'),
    'VC-068': Kind('hypervisors', WARNING, 'some work by an old policy',
                   'virtco host show HOST'),
    'VC-069': Kind('rates', WARNING, 'a speed is unknown',
                   'Set [edge] link_egress_bps.'),
    'VC-070': Kind('rates', WARNING, 'some are below the nominal rate',
                   'virtco rate list; look for errors and for other traffic '
                   'on the link.'),
    'VC-071': Kind('policies', WARNING, 'some are not applied',
                   'virtco host show HOST names what the edge module '
                   'refused.'),
    'VC-072': Kind('completion', WARNING, 'coflows took longer than planned',
                   'virtco coflow show NAME; compare hints with sent bytes, '
                   'and rates with virtco host list --classes HOST.'),
    'VC-080': Kind('coflow', WARNING, 'it is not active',
                   'virtco coflow show NAME'),
    'VC-081': Kind('coflow', WARNING, 'rows are without a host',
                   'Their VMs were not built yet, or have gone.'),
    'VC-082': Kind('coflow', WARNING, 'its project owes bytes',
                   'virtco project set PROJECT --forgive'),
    'VC-083': Kind('coflow', ERROR, 'no hypervisor has a class for it',
                   'Its VMs may all be on one host; else virtco host list.'),
    'VC-084': Kind('coflow', WARNING, 'packets wait below the rate',
                   'The link carries less than the controller believes.'),
    'VC-090': Kind('edge module', ERROR, 'another one runs',
                   'Stop one of the two.'),
    'VC-091': Kind('edge module', ERROR, 'an uplink is missing',
                   'Name a device that ip link shows.'),
    'VC-092': Kind('edge module', ERROR, 'Open vSwitch does not answer',
                   'Start it; compare [edge] ovsdb_connection.'),
    'VC-093': Kind('edge module', ERROR, 'its state cannot be saved',
                   'Make room, or let its user write [edge] state_dir.'),
}


def url(code: str) -> str:
    """Return the address of the entry of a code in the documentation."""
    return _ENTRY + code


def is_error(code: str) -> bool:
    """Tell whether something does not work."""
    return KINDS[code].state == ERROR
