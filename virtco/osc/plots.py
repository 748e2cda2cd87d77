# SPDX-License-Identifier: Apache-2.0

"""Pictures, which the extra ``plot`` draws."""

import importlib
from typing import Any

from osc_lib import exceptions as osc_exceptions

from virtco import exception
from virtco.cmd import entry


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
