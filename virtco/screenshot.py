# SPDX-License-Identifier: Apache-2.0

"""Console output as an SVG picture that loads nothing from the network."""

import pathlib
import re

from rich import console


def save(screen: console.Console, path: str | pathlib.Path,
         title: str) -> None:
    """Write the output of a recording console as SVG.

    rich names a font of a public server. A page of a cloud without access to
    it would wait for that, so that the reader's own monospaced font is taken.

    :raises OSError: when the file cannot be written.
    """
    text = screen.export_svg(title=title)
    text = re.sub(r'@font-face \{.*?\}', '', text, flags=re.DOTALL)
    pathlib.Path(path).write_text(text.replace('Fira Code', 'monospace'))
