// The view of one host: its rates over time, and the classes of its policy.

import { get, nowS } from './ask.js';
import { facts, link, make, rate, seconds, size, table } from './text.js';

const KEPT_POINTS = 600;
// Seconds that the chart shows at least.
const LEAST_S = 60;
const SERIES = [['Coflows, observed', '--active'], ['Coflows, guaranteed',
  '--planned'], ['Other traffic', '--warm']];

export class Host {
  constructor(name) {
    this.name = name;
    this.points = [[], ...SERIES.map(() => [])];
    this.chart = make('div', { class: 'chart', role: 'img',
      'aria-label': 'Rates since this page was opened; the numbers of now '
        + 'are in the table' });
    this.facts = make('div');
    this.body = make('tbody');
    this.element = make('div', {}, make('h1', { tabindex: -1 },
      `Host ${name}`), this.facts, make('h2', {}, 'Rates out of the host'),
    this.chart, make('h2', {}, 'Classes'), table('Classes', [['Class'],
      ['Coflow'], ['Order', 'number'], ['Guaranteed', 'number'],
      ['Ceiling', 'number spare'], ['Observed', 'number'],
      ['Queued', 'number spare'], ['To']], this.body));
  }

  async look() {
    const one = await get(`v1/hosts/${encodeURIComponent(this.name)}`);
    this.facts.replaceChildren(facts([['Health', one.health ?? 'no report'],
      ['Error', one.error], ['Drain', one.drain],
      ['Uplink, out and in', `${rate(one.egress_bps)}, ${
        rate(one.ingress_bps)} (${one.rate_source})`],
      ['Measured, out and in', one.measured_egress_bps == null ? null
        : `${rate(one.measured_egress_bps)}, ${rate(one.measured_ingress_bps)
        }, ${seconds(one.measured_age_s)} ago`],
      ['Last report', one.last_report == null ? 'never'
        : `${seconds(Math.max(0, nowS() - one.last_report))} ago`],
      ['Policies behind', String(one.generations_behind)]]));
    this.body.replaceChildren(...one.classes.map((found) => make('tr', {},
      make('td', {}, found.minor),
      make('th', { scope: 'row' }, link('coflow', found.coflow_id,
        found.name)),
      ...[[found.prio, ''], [rate(found.rate_bps), ''],
        [rate(found.ceil_bps), 'spare'], [rate(found.observed_bps), ''],
        [size(found.backlog_bytes), 'spare']].map(([text, kind]) =>
        make('td', { class: `number ${kind}` }, String(text))),
      make('td', {}, found.destinations.join(', ')))));
    this.add([one.coflows_bps, one.classes.reduce((sum, found) =>
      sum + found.rate_bps, 0), one.background_bps]);
  }

  add(values) {
    // uPlot draws years around a single point.
    if (!this.points[0].length) {
      this.points.forEach((points, i) => points.push(
        i === 0 ? nowS() - LEAST_S : null));
    }
    [nowS(), ...values].forEach((value, i) => {
      this.points[i].push(value);
      if (this.points[i].length > KEPT_POINTS) this.points[i].shift();
    });
    const width = Math.max(200, Math.min(900, this.chart.clientWidth || 300));
    if (this.plot === undefined) this.plot = this.draw(width);
    if (this.plot.width !== width) this.plot.setSize({ width, height: 220 });
    this.plot.setData(this.points);
  }

  draw(width) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name);
    const axis = { stroke: colour('--soft'), grid: {
      stroke: colour('--line') } };
    const plot = new window.uPlot({ width, height: 220, series: [{},
      ...SERIES.map(([label, name]) => ({ label, stroke: colour(name),
        width: 2, value: (_plot, value) => rate(value) }))],
    axes: [axis, { ...axis, size: 90, values: (_plot, ticks) =>
      ticks.map(rate) }], scales: { x: { range: (_plot, low, high) =>
      [Math.min(low, high - LEAST_S), high] }, y: { range: (_plot, _low, high) =>
      [0, Math.max(1, high)] } } }, this.points, this.chart);
    plot.root.setAttribute('aria-hidden', 'true');
    return plot;
  }
}
