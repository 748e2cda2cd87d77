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

"""Collects the options of every module beside it for oslo.config."""

import importlib
import pkgutil
from typing import Any

from oslo_config import cfg

import virtco.conf

SKIPPED = {'opts'}


def _modules() -> list[Any]:
    return [importlib.import_module(f'virtco.conf.{info.name}')
            for info in pkgutil.iter_modules(virtco.conf.__path__)
            if info.name not in SKIPPED]


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    return [item for module in _modules()
            for item in module.list_opts().items()]


def register_opts(conf: cfg.ConfigOpts) -> None:
    for module in _modules():
        module.register_opts(conf)
