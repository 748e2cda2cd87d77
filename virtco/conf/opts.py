# SPDX-License-Identifier: Apache-2.0

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
