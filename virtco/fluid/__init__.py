# SPDX-License-Identifier: Apache-2.0

"""Events of the fluid model, compiled. Pure."""

import virtco.compiled

virtco.compiled.check()
