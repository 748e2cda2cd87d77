# SPDX-License-Identifier: Apache-2.0

"""Makes the commands part of ``openstack``: ``openstack coflow …``."""

import os
from typing import Any

from virtco.client import v1

API_NAME = 'coflow'
DEFAULT_API_VERSION = '1'
API_VERSION_OPTION = 'os_coflow_api_version'
API_VERSIONS = {'1': 'virtco.client.v1.Client'}


def make_client(instance: Any) -> v1.Client:
    """Make the client, at ``VIRTCO_URL`` or where the catalogue says.

    :raises virtco.exception.NotFound: where the catalogue has none.
    """
    url = os.environ.get('VIRTCO_URL') or v1.url_in_catalogue(
        instance.session, interface=instance.interface,
        region_name=instance.region_name)
    return v1.Client(url, instance.session)


def build_option_parser(parser: Any) -> Any:
    """Add the options of this plug-in to those of ``openstack``."""
    parser.add_argument(
        '--os-coflow-api-version', metavar='<version>',
        default=os.environ.get('OS_COFLOW_API_VERSION',
                               DEFAULT_API_VERSION),
        help='Version of the coflow API, default 1')
    return parser
