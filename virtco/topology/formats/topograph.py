# SPDX-License-Identifier: Apache-2.0

"""JSON of NVIDIA topograph's graph engine. Pure.

Each instance tells the switches above it, the nearest first. Its labels may
tell the accelerators' domain (such as one NVLink switch's), which becomes a
plane of its own.
"""

import json
from typing import Any

from virtco.topology import laws
from virtco.topology import tree
from virtco.topology.formats import document
from virtco.topology.formats import result
from virtco.topology.formats import switch_lists as switches

ACCELERATOR = 'accelerator'
DOMAIN = 'accelerator.topograph.run/domain'
SUB_DOMAIN = 'accelerator.topograph.run/sub-domain'
#: Levels of the accelerators' plane.
_DOMAINS = (tree.Level('sub-domain'), tree.Level('domain'))
#: The switch of instances whose place topograph could not find out.
NO_TOPOLOGY = 'no-topology'


def load(value: Any, plane: str) -> result.Read:
    """Build planes from the values of topograph's graph of instances.

    :param plane: name of the plane of the network layers.
    :raises virtco.exception.TopologyInvalid: with the path of the value.
    """
    if not isinstance(value, dict) or not isinstance(
            value.get('instances'), list):
        raise laws.Wrong((), 'document', value, 'an object with instances')
    network: list[switches.Chain] = []
    domains: list[switches.Chain] = []
    seen: set[str] = set()
    without = []
    for i, item in enumerate(value['instances']):
        path = ('instances', i)
        if not isinstance(item, dict):
            raise laws.Wrong(path, f'instance {i + 1}', item, 'an object')
        host = laws.name(item.get('id'), (*path, 'id'), f'instance {i + 1}')
        if host in seen:
            raise laws.Wrong((*path, 'id'), f'instance {i + 1}', host,
                             'an id that no other instance has')
        seen.add(host)
        layers = _layers(item.get('network_layers'),
                         (*path, 'network_layers'), host)
        if layers:
            network.append((host, layers, path))
        else:
            without.append(host)
        labels = item.get('labels')
        if isinstance(labels, dict) and labels.get(DOMAIN) and (
                layers := _layers(
                    [labels.get(SUB_DOMAIN) or '', labels[DOMAIN]],
                    (*path, 'labels'), host)):
            domains.append((host, layers, path))
    planes = [switches.plane_above(plane, network)] if network else []
    if domains and plane != ACCELERATOR:
        planes.append(switches.plane_above(ACCELERATOR, domains, _DOMAINS))
    return result.Read(tree.Topology(tuple(planes)), tuple(
        f'instance {host} has no network layers' for host in without[:20]))


def _layers(value: Any, path: document.Path, host: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > laws.MAX_DEPTH:
        raise laws.Wrong(path, f'instance {host}: network_layers', value,
                         f'a list of at most {laws.MAX_DEPTH} switches')
    found = [laws.name(layer, path, f'instance {host}: network_layers')
             for layer in value if layer != '']
    if found[:1] == [NO_TOPOLOGY]:
        return []
    if len(set(found)) < len(found):
        raise laws.Wrong(path, f'instance {host}: network_layers', value,
                         'each switch once')
    return found


def write(topology: tree.Topology) -> result.Written:
    """Write a topology as topograph's graph of instances.

    :raises virtco.exception.TopologyInvalid: for several networks.
    """
    networks = [plane for plane in topology.planes
                if plane.name != ACCELERATOR]
    if len(networks) > 1:
        raise laws.Wrong((), 'planes', len(networks),
                         'one plane beside the accelerators\'')
    instances: dict[str, dict[str, Any]] = {}
    for plane in networks:
        for host, above in plane.chains():
            instances[host] = {'id': host, 'network_layers': [
                node.name for node in above]}
    domains = topology.plane(ACCELERATOR)
    for host, above in domains.chains() if domains is not None else ():
        labels = {DOMAIN: above[-1].name}
        if len(above) > 1:
            labels[SUB_DOMAIN] = above[0].name
        instances.setdefault(host, {'id': host})['labels'] = labels
    return result.Written(
        json.dumps({'instances': list(instances.values())}, indent=1) + '\n',
        result.lost(topology, 'topograph\'s graph', rates=True, levels=any(
            plane.levels for plane in networks)))
