# SPDX-License-Identifier: Apache-2.0

"""The tiers of the tests: their commands, gears and budgets of CPU time."""

import dataclasses
import os

PYTEST = ('python', '-m', 'pytest', '-q')
CORES = os.cpu_count() or 2
#: Commands beside each other: more than cores, since many tests wait for
#: timers of the product.
BESIDE = 2 * CORES + 1


@dataclasses.dataclass(frozen=True)
class Tier:
    """One tier of the tests.

    :ivar commands: what runs beside the commands of other tiers.
    :ivar alone: what runs after all these, one by one, since it times packets
        or sets up what others use.
    :ivar budget_cpu_s: CPU seconds of user and system, all processes; the
        tier fails beyond it. None: no limit, since it downloads or builds.
    :ivar part: of the full gear, 1 to 3.
    :ivar is_default: whether it runs when nothing is named.
    :ivar environment: variables for the full gear only.
    """

    commands: tuple[tuple[str, ...], ...] = ()
    alone: tuple[tuple[str, ...], ...] = ()
    budget_cpu_s: float | None = None
    part: int = 1
    is_default: bool = False
    environment: tuple[tuple[str, str], ...] = ()


def _parts(tier: str, n_parts: int, *args: str) -> tuple[tuple[str, ...], ...]:
    """Split a tier by files: each process imports and collects its own."""
    return tuple((*PYTEST, *args, f'--part={part}/{n_parts}', f'tests/{tier}')
                 for part in range(1, n_parts + 1))


#: Nova's tests take longest, and import what no others do.
_NOVA = 'functional/nova'
TIERS = {
    # Long commands come first, and those of like length last.
    'functional': Tier(
        _parts(_NOVA, 2)
        + _parts('functional', 3, f'--ignore=tests/{_NOVA}'),
        budget_cpu_s=800, is_default=True),
    'faults': Tier(_parts('faults', 3), budget_cpu_s=320, is_default=True,
                   environment=(('VIRTCO_FAULTS', 'full'),), part=3),
    'style': Tier((('mypy',), ('ruff', 'check'), ('tools/check_shell',),
                   ('tools/check_commits',)),
                  budget_cpu_s=200, is_default=True),
    'mutants': Tier((('tools/mutate', '--lines', '40', '--budget-s', '75',
                      '--least', '80', '--jobs', '1'),),
                    budget_cpu_s=240, is_default=True),
    'netns': Tier(_parts('netns', 2, '-m', 'not real_time'),
                  ((*PYTEST, '-m', 'real_time', 'tests/netns'),),
                  budget_cpu_s=450, is_default=True),
    'unit': Tier(_parts('unit', 6), budget_cpu_s=760, is_default=True),
    'docs': Tier(alone=(('sphinx-build', '-q', '-W', '-b', 'html',
                         'doc/source', 'doc/build/html'),)),
    'kernel': Tier(alone=(('tools/kernel_vm', *PYTEST, 'tests/kernel'),),
                   part=2),
    'wheels': Tier(alone=((*PYTEST, 'tests/wheels'),), part=2),
    'cloud': Tier(
        # Installs what the cloud needs beside the other extras.
        alone=(('tools/cloud', '--help'), (*PYTEST, 'tests/cloud')), part=2),
    'install': Tier(
        # Debian in a container: the pages, followed on a machine of its own.
        alone=(('env', 'DEBIAN_FRONTEND=noninteractive', 'apt-get', 'install',
                '-y', '-q', '--no-install-recommends', 'debootstrap',
                'systemd-container'), (*PYTEST, 'tests/install')), part=2),
    'evaluation': Tier(alone=(
        (*PYTEST, 'tests/evaluation/sim/test_reproduced.py'),)),
    'discovery': Tier(alone=((*PYTEST, '-s', 'tests/discovery'),), part=2),
    'mpi': Tier(alone=(('bash', 'tools/setup', 'mpi'),
                       (*PYTEST, 'tests/mpi')), part=2),
}
N_PARTS = max(tier.part for tier in TIERS.values())


def default() -> list[str]:
    return [name for name, tier in TIERS.items() if tier.is_default]


def of_part(part: int) -> list[str]:
    return [name for name, tier in TIERS.items() if tier.part == part]
