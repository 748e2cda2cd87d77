# SPDX-License-Identifier: Apache-2.0

"""Programs with other constants than those of the product.

    python -m tests.constants CONSTANTS MODULE [ARGUMENT…]

CONSTANTS is a JSON object such as ``{"virtco.state.state.FLUSH_S": 0.1}``:
tests that would wait for a constant's time give another.
"""

import importlib
import json
import runpy
import sys


def give(constants):
    for name, value in constants.items():
        module, _, constant = name.rpartition('.')
        found = importlib.import_module(module)
        assert hasattr(found, constant), name
        setattr(found, constant, value)


def main():
    text, program, *arguments = sys.argv[1:]
    give(json.loads(text))
    sys.modules.pop(program, None)
    sys.argv[:] = [program, *arguments]
    runpy.run_module(program, run_name='__main__', alter_sys=True)


if __name__ == '__main__':
    main()
