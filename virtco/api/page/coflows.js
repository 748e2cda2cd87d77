// The view of all coflows: a table whose last column is a timeline.

import { get, nowS } from './ask.js';
import { clock, link, make, rate, say, seconds, share, size, table }
  from './text.js';

const STATES = { live: ['planned', 'active'],
  recent: ['planned', 'active', 'done'],
  all: ['registered', 'planned', 'active', 'done', 'retired'] };
const PLACE = { active: 0, planned: 1, done: 2, registered: 3, retired: 4 };

// When a coflow is planned and when it ran, in seconds since the epoch. One
// that did not begin is planned from now on.
export function times(coflow, now) {
  const begin = coflow.arrival ?? (coflow.state === 'planned' ? now : null);
  const plannedEnd = begin == null || coflow.cct_s == null ? null
    : begin + coflow.cct_s;
  const first = coflow.first_byte ?? (coflow.state === 'active' ? begin : null);
  const last = coflow.state === 'active' ? now
    : coflow.last_byte ?? coflow.ended;
  return { begin, plannedEnd, first, last: first == null ? null : last,
    deadline: coflow.deadline };
}

function byOrder(a, b) {
  return PLACE[a.state] - PLACE[b.state]
    || (a.rank ?? Infinity) - (b.rank ?? Infinity)
    || (b.arrival ?? 0) - (a.arrival ?? 0)
    || a.id.localeCompare(b.id);
}

// Bounds of the axis that hold all of the coflows.
function bounds(coflows, now, windowS) {
  if (windowS) return [now - 0.75 * windowS, now + 0.25 * windowS];
  const all = coflows.flatMap((one) => Object.values(times(one, now)))
    .filter((at) => at != null);
  if (!all.length) return [now - 60, now];
  const from = Math.min(...all);
  return [from, Math.max(...all, from + 1)];
}

function place(bar, from, to, [begin, end]) {
  bar.hidden = from == null || to == null;
  if (bar.hidden) return;
  const part = (at) => 100 * (at - begin) / (end - begin);
  bar.style.left = `${part(from)}%`;
  if (to !== from) bar.style.width = `${part(to) - part(from)}%`;
}

// The planned time, the measured time and two marks, as bars.
export class Lane {
  constructor() {
    this.bars = ['plan', 'run', 'mark limit', 'mark now'].map((kind) =>
      make('i', { class: kind }));
    this.element = make('div', { class: 'lane', 'aria-hidden': 'true' },
      ...this.bars);
  }

  show(coflow, now, axis) {
    const at = times(coflow, now);
    const [plan, run, limit, mark] = this.bars;
    place(plan, at.begin, at.plannedEnd, axis);
    place(run, at.first, at.last, axis);
    const isLate = at.plannedEnd != null && at.last > at.plannedEnd + 0.05
      * coflow.cct_s;
    run.className = `run ${coflow.state}${isLate ? ' late' : ''}`;
    place(limit, at.deadline, at.deadline, axis);
    place(mark, now, now, axis);
  }
}

export function measured(coflow) {
  return coflow.measured_cct_s == null ? '–' : seconds(coflow.measured_cct_s);
}

class Row {
  constructor(id) {
    this.link = link('coflow', id, '');
    this.cells = ['state', 'number spare', 'number spare', 'number spare',
      'number', 'number'].map((kind) => make('td', { class: kind }));
    this.lane = new Lane();
    this.element = make('tr', { 'data-id': id },
      make('th', { scope: 'row' }, this.link), ...this.cells,
      make('td', {}, this.lane.element));
  }

  show(coflow, now, axis) {
    say(this.link, coflow.name);
    const texts = [coflow.state, share(coflow.size_bytes
      ? coflow.sent_bytes / coflow.size_bytes : null),
    size(coflow.size_bytes), rate(coflow.rate_bps), seconds(coflow.cct_s),
    measured(coflow)];
    texts.forEach((text, i) => say(this.cells[i], text));
    this.cells[0].className = `state ${coflow.state}`;
    this.lane.show(coflow, now, axis);
  }
}

export class Coflows {
  constructor() {
    this.rows = new Map();
    this.found = [];
    this.body = make('tbody');
    this.axis = make('div', { class: 'axis' });
    const redraw = () => this.draw();
    this.states = make('select', { onchange: redraw },
      make('option', { value: 'recent' }, 'planned, active and done'),
      make('option', { value: 'live' }, 'planned and active'),
      make('option', { value: 'all' }, 'all'));
    this.window = make('select', { onchange: redraw },
      ...[['0', 'all of them'], ['60', '1 minute'], ['600', '10 minutes'],
        ['3600', '1 hour']].map(([value, text]) =>
        make('option', { value }, text)));
    this.words = make('input', { type: 'search', oninput: redraw });
    this.count = make('p', { class: 'soft' });
    this.element = make('div', {},
      make('h1', { tabindex: -1 }, 'Coflows'),
      make('div', { class: 'controls' },
        make('label', {}, 'Show ', this.states),
        make('label', {}, 'Time ', this.window),
        make('label', {}, 'Name ', this.words)),
      this.count,
      make('p', { class: 'legend', 'aria-hidden': 'true' },
        ...[['plan', 'planned'], ['run', 'sending'],
          ['run done', 'done'], ['run late', 'later than planned'],
          ['mark limit', 'deadline']].map(([kind, text]) => make('span', {},
          make('span', { class: 'lane' }, make('i', { class: `${kind} key` })),
          ` ${text}`))),
      table('Coflows', [['Coflow'], ['State'], ['Sent', 'number spare'],
        ['Size', 'number spare'], ['Rate', 'number spare'],
        ['Planned', 'number'], ['Measured', 'number'], [this.axis, 'time']],
      this.body));
    for (const key of this.element.querySelectorAll('.legend .plan, .run')) {
      key.style.width = '100%';
    }
  }

  async look() {
    // Nearly all are retired: they would take the places of those that run.
    const retired = STATES[this.states.value].includes('retired');
    const path = `v1/coflows?limit=500&retired=${retired}`;
    this.found = (await get(path)).coflows.sort(byOrder);
    this.draw();
  }

  draw() {
    const now = nowS();
    const word = this.words.value.toLowerCase();
    const shown = this.found.filter((one) =>
      STATES[this.states.value].includes(one.state)
      && one.name.toLowerCase().includes(word));
    const axis = bounds(shown, now, Number(this.window.value));
    this.axis.replaceChildren(...[axis[0], (axis[0] + axis[1]) / 2, axis[1]]
      .map((at) => make('span', {}, clock(at))));
    say(this.count, `${shown.length} of ${this.found.length} coflows`);
    const before = this.rows;
    this.rows = new Map();
    shown.forEach((one, i) => {
      const row = before.get(one.id) ?? new Row(one.id);
      this.rows.set(one.id, row);
      row.show(one, now, axis);
      if (this.body.children[i] !== row.element) {
        this.body.insertBefore(row.element, this.body.children[i] ?? null);
      }
    });
    while (this.body.children.length > shown.length) {
      this.body.lastChild.remove();
    }
  }
}
