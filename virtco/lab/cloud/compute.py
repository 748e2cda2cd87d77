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

"""nova-compute with the cloud's driver.

Nova takes a driver's name as one below ``nova.virt``.
"""

import sys

# First of all: it patches, or forbids, what others import.
from nova.cmd import compute

from virtco.lab.cloud import driver


def main() -> None:
    sys.modules['nova.virt.virtco_lab'] = driver
    compute.main()


if __name__ == '__main__':
    main()
