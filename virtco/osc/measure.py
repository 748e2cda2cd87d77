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

"""Commands of the measurements between hypervisors."""

from typing import Any

from virtco.osc import base


class ShowProbes(base.ShowOne):
    """Show which measurements run, and what of their budget is used"""

    def entry(self, args: Any) -> dict[str, Any]:
        found = base.client_of(self.app).probes()
        under_way = found.pop('under_way')
        return found | {'n_under_way': len(under_way), 'under_way': [
            f'{pair["src"]} -> {pair["dst"]}' for pair in under_way]}
