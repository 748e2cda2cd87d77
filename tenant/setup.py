# SPDX-License-Identifier: Apache-2.0

"""Reads the version from git; all else is in pyproject.toml."""

from pbr import packaging
import setuptools

setuptools.setup(version=packaging.get_version('virtco-tenant'))
