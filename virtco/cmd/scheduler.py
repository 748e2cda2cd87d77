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

"""``virtco-scheduler``: decides who sends when, if it leads."""

import sys

from virtco.cmd import controller


def main(argv: list[str] | None = None) -> int:
    return controller.main(argv, controller.SCHEDULER)


if __name__ == '__main__':
    sys.exit(main())
