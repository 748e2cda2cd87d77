# SPDX-License-Identifier: Apache-2.0

"""All operations of the REST API."""

import importlib
import pkgutil
from typing import Any

from virtco import wire
from virtco.wire import operation

OPERATIONS: list[operation.Operation[Any]] = [
    one for module in pkgutil.iter_modules(wire.__path__, f'{wire.__name__}.')
    if module.name != __name__
    for one in vars(importlib.import_module(module.name)).values()
    if isinstance(one, operation.Operation)]
