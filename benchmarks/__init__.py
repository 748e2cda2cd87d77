# SPDX-License-Identifier: Apache-2.0

"""One command for each claim about speed or quality."""

import tests  # noqa: F401, for the paths of all distributions
