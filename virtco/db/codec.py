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

"""Matrices and numbers as the database and JSON keep them. Pure."""

import json
import math
from typing import TYPE_CHECKING

from virtco.model import coflow as coflow_model

if TYPE_CHECKING:
    from virtco.db import models


def decode_coflow(stored: 'models.Coflow') -> coflow_model.Coflow:
    """The matrix of a stored coflow."""
    return coflow_model.Coflow(
        stored.name, stored.n_vms,
        tuple(coflow_model.Flow(src, dst, size_bytes)
              for src, dst, size_bytes in json.loads(stored.tm)),
        stored.dst_port, stored.iterations, stored.period_s,
        stored.compute_s, bool(stored.rank_hint))


def finite(value: float | None) -> float | None:
    """Databases and JSON know no infinity; null stands for it."""
    return value if value is not None and math.isfinite(value) else None


def encode_flows(coflow: coflow_model.Coflow) -> str:
    return json.dumps([[flow.src, flow.dst, flow.size_bytes]
                       for flow in coflow.flows], separators=(',', ':'))
