# SPDX-License-Identifier: Apache-2.0

"""Collects the options of every module of this package for oslo.config."""

import importlib
import pkgutil
from typing import Any

from oslo_config import cfg

import virtco.conf


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """List the groups, each with its options: GROUP and OPTS of a module."""
    modules: list[Any] = [
        importlib.import_module(f'virtco.conf.{info.name}')
        for info in pkgutil.iter_modules(virtco.conf.__path__)
        if info.name != 'opts']
    return [(module.GROUP, module.OPTS) for module in modules]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of :func:`list_opts`, each in its group."""
    for group, options in list_opts():
        conf.register_opts(options, group=group)
