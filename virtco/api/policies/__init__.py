# SPDX-License-Identifier: Apache-2.0

"""Who may call what; one module per noun."""

from oslo_policy import policy

from virtco.api.policies import advice
from virtco.api.policies import base
from virtco.api.policies import coflow
from virtco.api.policies import operator
from virtco.api.policies import profile
from virtco.api.policies import service


def list_rules() -> list[policy.RuleDefault]:
    return [*base.RULES, *advice.RULES, *coflow.RULES, *operator.RULES,
            *profile.RULES, *service.RULES]
