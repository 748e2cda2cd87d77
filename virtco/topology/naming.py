# SPDX-License-Identifier: Apache-2.0

"""Names for switches that were found by measuring. Pure."""

import dataclasses

from virtco.topology import tree


def renamed(new: tree.Plane, old: tree.Plane | None) -> tree.Plane:
    """Keep an old plane's names for nodes and levels.

    A node is the same if more than half of the hosts below both are.
    """
    if old is None:
        return new
    former = {node.name: (node.height(), set(node.all_hosts()))
              for node in old.walk()}
    given: dict[str, str] = {}
    for node in new.walk():
        height, hosts = node.height(), set(node.all_hosts())
        for name, (old_height, old_hosts) in former.items():
            if height == old_height and (
                    2 * len(hosts & old_hosts) > len(hosts | old_hosts)):
                given[node.name] = name
    kept = set(given.values())

    def called(name: str) -> str:
        if name in given:
            return given[name]
        while name in kept:
            name += '-new'
        return name

    def moved(node: tree.Node) -> tree.Node:
        return dataclasses.replace(
            node, name=called(node.name),
            children=tuple(moved(child) for child in node.children))

    return dataclasses.replace(
        new, levels=tuple(tree.Level(old.level(height).name)
                          for height in range(len(new.levels))),
        roots=tuple(moved(root) for root in new.roots))
