# SPDX-License-Identifier: Apache-2.0

"""Who may call what; one module per noun."""

from oslo_policy import policy

from virtco.api.policies import advice_rules as advice
from virtco.api.policies import base_rules as base
from virtco.api.policies import coflow_rules as coflow
from virtco.api.policies import operator_rules as operator
from virtco.api.policies import profile_rules as profile
from virtco.api.policies import service_rules as service


def list_rules() -> list[policy.RuleDefault]:
    return [*base.RULES, *advice.RULES, *coflow.RULES, *operator.RULES,
            *profile.RULES, *service.RULES]
