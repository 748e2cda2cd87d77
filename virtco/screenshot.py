# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""What a console printed, as a picture that needs nothing of the network."""

import pathlib
import re

from rich import console


def save(screen: console.Console, path: str | pathlib.Path,
         title: str) -> None:
    """Write what a recording console printed as SVG.

    rich names a font of a public server. A page of a cloud without access to
    it would wait for that, so that the reader's own monospaced font is taken.

    :raises OSError: when the file cannot be written.
    """
    text = screen.export_svg(title=title)
    text = re.sub(r'@font-face \{.*?\}', '', text, flags=re.DOTALL)
    pathlib.Path(path).write_text(text.replace('Fira Code', 'monospace'))
