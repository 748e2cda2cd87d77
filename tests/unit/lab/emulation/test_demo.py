# SPDX-License-Identifier: Apache-2.0

"""The demo: its workloads, its run on a made-up testbed, and what it shows."""

import contextlib
import dataclasses
import io
import types
import webbrowser

import pytest
from rich import console as rich_console

from tests.unit.lab.emulation import drawing
from virtco.model import snapshot
from virtco_lab.emulation import demo
from virtco_lab.emulation import plots
from virtco_lab.emulation import prediction
from virtco_lab.emulation import report
from virtco_lab.emulation import results
from virtco_lab.emulation import runner
from virtco_lab.emulation import scenario
from virtco_lab.emulation import table


def _groups(workload):
    return [[group.name, group.n_vms, group.vm_slots, [
        [coflow.name, coflow.dst_port, len(coflow.flows), coflow.size_bytes,
         *([flow.src, flow.dst, flow.size_bytes]
           for flow in (coflow.flows[0], coflow.flows[-1])),
         max(flow.size_bytes for flow in coflow.flows)]
        for coflow in group.coflows]] for group in workload.groups]


def test_workloads_are_drawn_as_ever():
    found = {'slots': [scenario.slots_per_host(n) for n in (3, 4, 5, 17, 18)]}
    for workload in (scenario.fig1(20e6, 7), scenario.fig1(20e6, 2, 3.0),
                     scenario.mix(6, 20e6, 3), scenario.mix(18, 50e6, 3),
                     scenario.mix(3, 20e6, 3, 7.0)):
        found[f'{workload.name} {len(found)}'] = {
            **dataclasses.asdict(workload), 'groups': _groups(workload)}
    drawing.check('demo-workloads', found)


def test_models_expect_of_a_placement_what_they_ever_did():
    workload = scenario.mix(6, 20e6, 1)
    rates_bps = {f'h{i}': 20e6 - 1e6 * i for i in range(6)}
    found = {}
    for scheme in workload.schemes:
        counts = []
        observer = runner.Observer()
        observer.count = lambda what, done, total, counts=counts: (
            counts.append(done))
        hosts = runner.run_simulated(workload, scheme, rates_bps, 6, 0,
                                     observer).hosts
        usable_bps = prediction.usable_bps(rates_bps, scheme)
        placed = prediction.placed_coflows(workload, hosts)
        found[scheme.name] = {
            'hosts': hosts, 'counts': counts, 'usable_bps': usable_bps,
            'simulated': prediction.simulate(placed, usable_bps,
                                             scheme.order),
            'expected': prediction.expect(placed, usable_bps, scheme.order),
            'taken': prediction.simulate_as_taken(
                placed, usable_bps, scheme.order, [1.0] * len(placed)),
            'local': prediction.simulate_local(placed, 1e8),
            'uplinks': prediction.uplink_bytes(placed, rates_bps),
            'active': [[one.coflow_id, sorted(one.out_bytes),
                        sorted(one.in_bytes)] for one in (
                            snapshot.ActiveCoflow.of(one.coflow.name, (
                                flow for flow in one.flows()
                                if flow[0] != flow[1])) for one in placed)]}
    drawing.check('demo-predictions', found)


@pytest.mark.parametrize(('sizes', 'groups'), [
    ((1000, 1004.9, 1011), [[0, 1]]), ((1000, 1004, 1008), [[0, 1, 2]]),
    ((1011, 1005.1, 1000), []), ((1000, 2000, 1000), [[0, 2]])])
def test_bottlenecks_within_half_a_percent_are_ties(sizes, groups):
    placed = [prediction.Placed(
        prediction.coflow_model.Coflow.from_flows(str(i), 2, [(0, 1, size)]),
        ('x', 'y')) for i, size in enumerate(sizes)]
    assert prediction.ties(placed, {'x': 8.0, 'y': 8.0}, 'sebf') == groups


def _scheme(name, times, *, tied=False, unpaced=0.9, timeline=()):
    return results.SchemeResult(name, name.upper(), tuple(
        results.CoflowResult(f'C{i}', 'g', 3, 5e6 * (i + 1), time_s * 0.95,
                             time_s, time_s * unpaced, tied)
        for i, time_s in enumerate(times)),
        {'g': ('h0', 'h0', 'h1')}, {'h0': (1e6, 2e6), 'h1': (0.0, 1e6)},
        timeline, 0.1)


@pytest.fixture(name='found')
def _found():
    timeline = ((10 ** 6, 0), (10 ** 6, 5 * 10 ** 5), (0, 10 ** 5),
                (10 ** 5, 0))
    fig1 = results.WorkloadResult(
        'fig1', 'Two <coflows>', (
            _scheme('apart', (7.0, 2.0), timeline=timeline),
            _scheme('ta', (4.0, 2.0)),
            _scheme('joint', (4.5, 0.01), timeline=timeline[:3])),
        unit_s=1.5, paper_means=(4.5, 3.0, 2.5))
    mix = results.WorkloadResult('mix', 'The mix', (
        _scheme('apart', (5.0, 6.0), tied=True, unpaced=0.95),
        _scheme('joint', (7.0, 9.0), unpaced=0.95)), complete=True)
    return results.Results('emulated', 3, 1e8, 2, 0, (fig1, mix), (
        results.HostRate('h0', 1e8, 9.9e7, None),
        results.HostRate('h1', 1e8, 5e7, 5e7, slow=True)),
        ('Something & other',), 12.0)


def _texts(found, width):
    out = rich_console.Console(width=width, file=io.StringIO())
    table.show(found, out)
    return out.file.getvalue().splitlines()


def test_what_is_shown_is_shown_as_ever(found, monkeypatch):
    for name in ('completion_bars', 'agreement', 'timelines'):
        monkeypatch.setattr(plots, name, lambda *given, name=name: (
            f'<{name} of {len(given)}>'))
    partial = dataclasses.replace(
        found, partial=True, mode='simulated', workloads=(
            dataclasses.replace(found.workloads[0], complete=False,
                                schemes=found.workloads[0].schemes[:2]),))
    drawing.check('demo-shown', {
        'wide': _texts(found, 80), 'narrow': _texts(found, 79),
        'partial': _texts(partial, 80), 'json': found.to_dict(),
        'sentences': [one.sentence() for one in (found, partial)],
        'speed-ups': [one.speed_ups() for one in (*found.workloads,
                                                  *partial.workloads)],
        'timeline': report.timeline(found).splitlines(),
        'html': report.render(found).splitlines(),
        'partial html': report.render(partial).splitlines()})


def _axes(axes):
    legend = axes.get_legend()
    return {
        'title': axes.get_title(loc='left'), 'x': axes.get_xlabel(),
        'y': axes.get_ylabel(),
        'ticks': [one.get_text() for one in axes.get_xticklabels()]
        if any(not one.get_text().lstrip('−').replace('.', '').isdecimal()
               for one in axes.get_xticklabels()) else [],
        'tick angle': axes.get_xticklabels()[0].get_rotation()
        if axes.get_xticklabels() else None,
        'bars': [[*one.get_xy(), one.get_width(), one.get_height(),
                  one.get_facecolor()] for one in axes.patches],
        'lines': [[[float(value) for value in one.get_xdata()],
                   [float(value) for value in one.get_ydata()],
                   one.get_marker(), one.get_markersize(),
                   str(one.get_color()), one.get_linewidth(),
                   one.get_label()] for one in axes.lines],
        'areas': [[one.get_alpha(), one.get_label(),
                   [[float(value) for value in corner]
                    for path in one.get_paths() for corner in path.vertices]]
                  for one in axes.collections],
        'legend': legend and [[one.get_text(), one.get_fontsize()]
                              for one in legend.get_texts()],
        'grid': [one.get_visible() for one in axes.get_xgridlines()][:1]}


def test_plots_are_drawn_as_ever(found, monkeypatch):
    drawn = []

    def svg(made, words):
        drawn.append({
            'words': words, 'size': [float(one) for one in
                                     made.get_size_inches()],
            'axes': [_axes(axes) for axes in made.axes],
            'title': made._suptitle and [
                made._suptitle.get_text(), made._suptitle.get_fontsize(),
                made._suptitle.get_position()[0]],
            'legends': [[[one.get_text(), one.get_fontsize()]
                         for one in legend.get_texts()]
                        for legend in made.legends]})
        return ''

    monkeypatch.setattr(plots, '_svg', svg)
    plots.completion_bars(found.workloads[0], 'measured')
    plots.agreement(found.workloads, 'simulated')
    plots.timelines(found.workloads[0])
    drawing.check('demo-plots', {str(number): one
                                 for number, one in enumerate(drawn)})


def test_a_picture_has_words_for_who_does_not_see_it(found):
    text = plots.completion_bars(found.workloads[0], 'measured')
    assert text.startswith('<svg role="img" aria-label="Bars: measured ')
    assert text.count('aria-label') == 1
    assert 'dc:date' not in text


def test_rates_are_smoothed_over_three_bins():
    rows = plots.np.array([[3.0], [0.0], [6.0], [0.0]])
    assert plots._smooth(rows, 3).ravel().tolist() == pytest.approx(
        [1.0, 3.0, 2.0, 2.0])
    assert plots._smooth(rows[:3], 3).ravel().tolist() == pytest.approx(
        [1.0, 3.0, 2.0])
    assert plots._smooth(rows[:2], 3) is not rows
    assert plots._smooth(rows[:2], 3).ravel().tolist() == [3.0, 0.0]


# The run.

class Testbed:
    __test__ = False
    story = None
    is_measured = True

    def __init__(self, bed, say):
        self.story.append(str(dataclasses.replace(bed, logs=None)))
        self._say = say

    def __enter__(self):
        self._say('starting')
        return self

    def __exit__(self, *error):
        self.story.append('removed')

    def wait_measured(self):
        self._say('measuring')
        return self.is_measured

    def open_page(self):
        return 'http://page'

    def host_rates(self):
        return (results.HostRate('h0', 1e7, 9.96e6, None),
                results.HostRate('h1', 1e7, 5e6, 4.9e6, slow=True))


@pytest.fixture(name='run')
def _run(monkeypatch, tmp_path):
    made = types.SimpleNamespace(story=[], busy=0.1, fails=False)
    monkeypatch.setattr(Testbed, 'story', made.story)
    monkeypatch.setattr(demo.testbed_module, 'Testbed', Testbed)
    monkeypatch.setattr(demo.calibration, 'measure_bps', lambda: 2.5e9)

    class Display:
        elapsed_s = 12.5

        def __init__(self, console):
            assert console == 'console'

        def say(self, text):
            made.story.append(text)

        def progress(self, title):
            made.story.append(f'[{title}]')
            return contextlib.nullcontext('progress')

    monkeypatch.setattr(demo.displays, 'Display', Display)

    class Browser:
        def open(self, url):
            made.story.append(f'browser at {url}')

    def browser():
        if made.browser is None:
            raise webbrowser.Error('none')
        return made.browser

    made.browser, made.Browser = None, Browser
    monkeypatch.setattr(webbrowser, 'get', browser)

    def result(scheme):
        if made.fails and scheme.name == 'joint':
            raise KeyboardInterrupt
        return dataclasses.replace(
            _scheme(scheme.name, (3.0, 4.0)), label=scheme.label,
            busy_fraction=made.busy,
            uplink_bytes={'h0': (1e6, 2e6), 'h1': (3e6, 4e6),
                          'h2': (0.0, 5e6)})

    def emulate(testbed, workload, scheme, progress, keep, on_result):
        made.story.append(f'{workload.name} {scheme.name} keep {keep}')
        on_result(result(scheme))

    def simulate(workload, scheme, rates_bps, slots, seed, progress):
        made.story.append(f'{workload.name} {scheme.name} {rates_bps} '
                          f'{slots} {seed} {progress}')
        return result(scheme)

    monkeypatch.setattr(demo.runner, 'run_emulated', emulate)
    monkeypatch.setattr(demo.runner, 'run_simulated', simulate)

    def call(is_simulated=False, **changes):
        options = demo.Options(**{
            'n_hosts': 3, 'rate_bps': 1e7, 'seed': 4, 'report_dir': tmp_path}
            | changes)
        one = demo.Demo(options, 'console', is_simulated)
        with contextlib.suppress(KeyboardInterrupt):
            one.run()
        return one.results()

    made.call = call
    return made


@pytest.mark.parametrize(('name', 'changes'), [
    ('usual', {}), ('page', {'has_page': True, 'only': 'fig1'}),
    ('slow', {'slow_host': 'h1', 'only': 'fig1'}),
    ('measured', {'rate_bps': None, 'only': 'mix'}),
    ('simulated', {'is_simulated': True, 'slow_host': 'h1'}),
    ('rate', {'is_simulated': True, 'rate_bps': None, 'only': 'fig1'})])
def test_a_run_is_told_as_ever(run, name, changes, monkeypatch):
    monkeypatch.setattr(Testbed, 'is_measured', name != 'slow')
    run.busy = 0.96 if name == 'slow' else 0.95
    found = run.call(**changes)
    drawing.check(f'demo-run-{name}', {
        **{field.name: getattr(found, field.name)
           for field in dataclasses.fields(found)
           if field.name not in ('workloads', 'host_rates')},
        'workloads': [[one.name, one.unit_s, list(one.paper_means),
                       one.complete, len(one.schemes)]
                      for one in found.workloads],
        'rates': [dataclasses.asdict(one) for one in found.host_rates]},
        run.story)


def test_a_page_is_opened_where_the_desktop_has_a_browser(run):
    terminal = webbrowser.GenericBrowser('lynx')
    terminal.open = run.story.append
    for browser, opened in ((None, []), (terminal, []), (
            run.Browser(), ['browser at http://page'])):
        run.story.clear()
        run.browser = browser
        run.call(has_page=True, only='fig1')
        assert 'watch it at http://page' in run.story
        assert [one for one in run.story if one.startswith(
            ('browser', 'http'))] == opened


def test_what_breaks_off_is_partial(run):
    run.fails = True
    found = run.call(only='fig1')
    assert found.partial is True
    workload, = found.workloads
    assert len(workload.schemes) == len(workload.paper_means) == 2
    assert not workload.complete and run.story[-1] == 'removed'


def test_nothing_is_finished_before_the_first_scheme(run, monkeypatch):
    monkeypatch.setattr(scenario, 'FIG1_SCHEMES', scenario.FIG1_SCHEMES[2:])
    run.fails = True
    assert run.call(only='fig1') is None


def test_a_report_says_where_it_is(found, tmp_path):
    out = rich_console.Console(width=40, file=io.StringIO())
    options = demo.Options(3, 1e7, 0, tmp_path / 'a' / 'report')
    demo.present(found, options, out)
    assert out.file.getvalue().endswith(
        f'Report: {tmp_path}/a/report/report.html\n')
    assert all(one.title in out.file.getvalue() for one in found.workloads)
    assert {path.name for path in options.report_dir.iterdir()} == {
        'results.json', 'table.svg', 'timeline.svg', 'report.html'}
    assert options.slots == scenario.slots_per_host(3)
    text = (options.report_dir / 'results.json').read_text()
    assert text.startswith('{\n "mode"') and text.endswith('}\n')
    demo.present(found, options, out)
