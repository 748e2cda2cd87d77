# SPDX-License-Identifier: Apache-2.0

import virtco.compiled

virtco.compiled.check()
