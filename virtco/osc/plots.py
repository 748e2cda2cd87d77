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

"""Pictures, which the extra ``plot`` draws."""

import importlib
from typing import Any

from osc_lib import exceptions as osc_exceptions

from virtco.cmd import entry
from virtco import exception


def save(module: str, drawn: Any, path: str) -> None:
    """Let a module's ``save`` write a file.

    :raises virtco.exception.InputInvalid: when it cannot be written.
    """
    try:
        importlib.import_module(module).save(drawn, path)
    except ModuleNotFoundError as error:
        raise osc_exceptions.CommandError(
            entry.missing(error, 'plot')) from None
    except (OSError, ValueError) as error:
        raise exception.InputInvalid(
            where=path, field='file', value=str(error)[:80],
            limit='a file *.png, *.svg or *.pdf that can be written'
        ) from None
