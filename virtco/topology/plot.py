# SPDX-License-Identifier: Apache-2.0

"""A plane as a picture; needs matplotlib, the extra ``plot``."""

from matplotlib import figure

from virtco.topology import drawing
from virtco.topology import tree

_MAX_LABELS = 400


def save(plane: tree.Plane, path: str) -> None:
    """Write a picture of the plane to a file.

    :param path: its ending tells the format (png, svg, pdf).
    :raises OSError: when the file cannot be written.
    :raises ValueError: for an ending that is unknown.
    """
    picture(plane).savefig(path, bbox_inches='tight', dpi=120)


def picture(plane: tree.Plane) -> figure.Figure:
    """Draw the switches by level, the hosts at the bottom."""
    spots: dict[str, tuple[float, float]] = {}
    edges: list[tuple[str, str, str]] = []
    width = 0.0
    for root in plane.roots:
        width = _lay(root, width, spots, edges)
    found = figure.Figure(figsize=(max(6.0, min(60.0, 0.25 * width)),
                                   1.5 + 1.5 * (plane.depth() + 1)))
    axes = found.subplots()
    axes.set_axis_off()
    labelled = len(spots) <= _MAX_LABELS
    for parent, child, text in edges:
        (x0, y0), (x1, y1) = spots[parent], spots[child]
        axes.plot([x0, x1], [y0, y1], color='0.6', linewidth=0.7, zorder=0)
        if text and labelled:
            axes.text((x0 + x1) / 2, (y0 + y1) / 2, text, fontsize=6,
                      ha='center')
    for name, (x, y) in spots.items():
        axes.scatter([x], [y], s=14, color='C0' if y > 0 else 'C1')
        if labelled:
            axes.text(x, y - 0.08, name.partition('\0')[2], fontsize=6,
                      ha='center', va='top', rotation=90 if y == 0 else 0)
    for height, name in enumerate(plane.level_names()):
        axes.text(-0.5, height + 1, name, ha='right', fontsize=8)
    axes.set_title(f'plane {plane.name}')
    return found


def _lay(node: tree.Node, left: float,
         spots: dict[str, tuple[float, float]],
         edges: list[tuple[str, str, str]]) -> float:
    """Place the children, then the node; return the right end."""
    begin = left
    name = f'node\0{node.name}'
    for child in node.children:
        left = _lay(child, left, spots, edges)
        edges.append((name, f'node\0{child.name}',
                      drawing.uplink(child.uplink)))
    for host in node.hosts:
        spots[f'host\0{host}'] = left, 0.0
        edges.append((name, f'host\0{host}', ''))
        left += 1
    left = max(left, begin + 1)
    spots[name] = (begin + left - 1) / 2, node.height() + 1.0
    return left
