# SPDX-License-Identifier: Apache-2.0

"""The version, as packaged."""

from importlib import metadata


def version_string() -> str:
    """Return the installed version."""
    try:
        return metadata.version('virtco')
    except metadata.PackageNotFoundError:
        return 'unknown'
