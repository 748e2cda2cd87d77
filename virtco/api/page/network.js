// The view of the network: its tree, each host coloured by use or by rate.

import { get } from './ask.js';
import { link, make, rate, say, share } from './text.js';

const HEATS = ['below 25 %', '25 to 50 %', '50 to 75 %', '75 to 90 %',
  'from 90 %'];
const EDGES = [0.25, 0.5, 0.75, 0.9];

// The hosts of a list such as a[01-03,7]; the API checked it.
export function expand(list) {
  if (Array.isArray(list)) return list.flatMap(expand);
  return (list ?? '').split(/,(?![^[]*\])/).map((word) => word.trim())
    .filter(Boolean).flatMap(expandWord);
}

function expandWord(word) {
  const found = /^([^[]*)\[([^\]]*)\](.*)$/.exec(word);
  if (found === null) return [word];
  const [, head, ranges, rest] = found;
  const tails = expandWord(rest);
  return ranges.split(',').flatMap((part) => {
    const [from, to = from] = part.trim().split('-').map((one) => one.trim());
    return Array.from({ length: Number(to) - Number(from) + 1 }, (_, i) =>
      head + String(Number(from) + i).padStart(from.length, '0'));
  }).flatMap((name) => tails.map((tail) => name + tail));
}

// Part of the uplink in use: coflows and other traffic.
const used = (host) => (host.coflows_bps + host.background_bps)
  / host.egress_bps;
// Part of the link's speed that measurement did not find.
const missing = (host) => (host.measured_egress_bps == null
  || !host.link_egress_bps ? null
  : Math.max(0, 1 - host.measured_egress_bps / host.link_egress_bps));

const hosts = (n) => (n === 1 ? '1 host' : `${n} hosts`);

function heat(part) {
  const i = EDGES.findIndex((edge) => part < edge);
  return i < 0 ? EDGES.length : i;
}

class Cell {
  constructor(name) {
    this.rates = make('small');
    this.element = make('li', { class: 'cell', 'data-host': name },
      link('host', name), this.rates);
  }

  show(host, by) {
    if (host === undefined) {
      say(this.rates, 'no report');
      return;
    }
    const part = by === 'used' ? used(host) : missing(host);
    this.element.className = `cell heat-${heat(part ?? 0)}`;
    say(this.rates, by === 'used'
      ? `${share(part)} of ${rate(host.egress_bps)}`
      : part === null ? 'not measured' : `${rate(host.measured_egress_bps)
      } of ${rate(host.link_egress_bps)}`);
  }
}

// Part of a switch's uplink in use: the direction that has more.
const uplinkUsed = (one) => Math.max(
  one.up_bps == null ? 0 : one.observed_up_bps / one.up_bps,
  one.down_bps == null ? 0 : one.observed_down_bps / one.down_bps);
// Part of the topology's rate that a check did not find.
const uplinkMissing = (one) => Math.max(
  one.up_bps == null ? 0 : 1 - one.up_bps / one.nominal_up_bps,
  one.down_bps == null ? 0 : 1 - one.down_bps / one.nominal_down_bps);

function uplinkText(one, by) {
  if (by === 'used') {
    return `coflows up ${rate(one.observed_up_bps)} of ${rate(one.up_bps)
    }, down ${rate(one.observed_down_bps)} of ${rate(one.down_bps)}`;
  }
  return `carries up ${rate(one.up_bps)} of ${rate(one.nominal_up_bps)
  }, down ${rate(one.down_bps)} of ${rate(one.nominal_down_bps)}`;
}

export class Network {
  constructor() {
    this.cells = new Map();
    this.switches = [];
    this.generation = null;
    this.by = make('select', { onchange: () => this.draw() },
      make('option', { value: 'used' }, 'use of the uplink'),
      make('option', { value: 'measured' },
        'missing rate (measured below nominal)'));
    this.hosts = new Map();
    this.uplinks = new Map();
    this.tree = make('ul', { class: 'tree' });
    this.count = make('p', { class: 'soft' });
    this.element = make('div', {}, make('h1', { tabindex: -1 }, 'Network'),
      make('div', { class: 'controls' },
        make('label', {}, 'Colour by ', this.by)),
      make('p', { class: 'legend' }, ...HEATS.map((text, i) =>
        make('span', { class: `cell heat-${i}` }, text))),
      this.count, this.tree);
  }

  async look() {
    const [topology, { hosts: found }] = [await get('v1/topology'),
      await get('v1/hosts')];
    this.hosts = new Map(found.map((host) => [host.host, host]));
    this.uplinks = new Map(topology.uplinks.map((one) => [one.name, one]));
    const shape = JSON.stringify([topology.generation,
      found.map((host) => host.host)]);
    if (shape !== this.shape) this.build(topology);
    this.shape = shape;
    this.draw();
  }

  build({ planes }) {
    this.cells.clear();
    this.switches = [];
    // Coflows use this plane; the others have none of these hosts' uplinks.
    const plane = planes.find((one) => one.name === 'front-end');
    const nodes = (plane?.nodes ?? []).map((node) => this.node(node).item);
    const rest = [...this.hosts.keys()].filter((name) =>
      !this.cells.has(name)).sort();
    if (rest.length) {
      nodes.push(this.node({ name: nodes.length ? 'not in the topology'
        : 'all hosts', hosts: rest }).item);
    }
    this.tree.replaceChildren(...nodes);
  }

  node(node) {
    const names = expand(node.hosts);
    const cells = names.map((name) => {
      this.cells.set(name, new Cell(name));
      return this.cells.get(name).element;
    });
    const below = (node.nodes ?? []).map((child) => this.node(child));
    const all = [...names, ...below.flatMap((child) => child.names)];
    const text = make('small');
    const cell = make('span', { class: 'cell' },
      make('strong', {}, node.name), ' ', text);
    this.switches.push({ name: node.name, names: all, text, cell });
    const item = make('li', {}, make('details', { open: true },
      make('summary', { 'data-switch': node.name }, cell),
      below.length ? make('ul', {}, ...below.map((child) => child.item))
        : null,
      cells.length ? make('ul', { class: 'hosts' }, ...cells) : null));
    return { item, names: all };
  }

  draw() {
    say(this.count, hosts(this.hosts.size));
    for (const [name, cell] of this.cells) {
      cell.show(this.hosts.get(name), this.by.value);
    }
    const isUse = this.by.value === 'used';
    for (const { name, names, text, cell } of this.switches) {
      const one = this.uplinks.get(name);
      const part = one && (isUse ? uplinkUsed(one) : uplinkMissing(one));
      cell.className = `cell heat-${heat(part ?? 0)}`;
      const parts = names.map((host) => this.hosts.get(host))
        .filter(Boolean).map(used);
      say(text, [hosts(names.length),
        one && uplinkText(one, this.by.value),
        isUse && parts.length && `uplinks of hosts in use: ${share(
          parts.reduce((sum, use) => sum + use, 0) / parts.length)
        } on average, ${share(Math.max(...parts))} at most`]
        .filter(Boolean).join('; '));
    }
  }
}
