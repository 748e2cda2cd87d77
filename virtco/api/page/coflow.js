// The view of one coflow: facts, flows by host, members, who it waits for.

import { get, nowS, Refused } from './ask.js';
import { Lane, measured, times } from './coflows.js';
import { clock, facts, link, make, rate, seconds, share, size, table }
  from './text.js';

// Each host's classes are one request; of more hosts none are asked for.
const MOST_HOSTS = 16;

function row(...cells) {
  return make('tr', {}, ...cells.map((cell) => make('td', {}, cell ?? '–')));
}

function section(title, ...children) {
  return make('section', {}, make('h2', {}, title), ...children);
}

export class Coflow {
  constructor(id) {
    this.id = id;
    this.title = make('h1', { tabindex: -1 }, 'Coflow');
    this.body = make('div');
    this.explanation = make('div', { role: 'status' });
    this.element = make('div', {}, this.title, this.body, this.explanation);
  }

  async look() {
    const path = `v1/coflows/${encodeURIComponent(this.id)}`;
    const found = await get(path);
    const hosts = [...new Set(found.hosts.filter(Boolean))];
    const flows = hosts.length > MOST_HOSTS ? null
      : (await Promise.all(hosts.map((host) => this.flows(host)))).flat();
    const names = found.waits_for.length
      ? new Map((await get('v1/coflows?retired=false')).coflows.map((one) =>
        [one.id, one.name])) : new Map();
    // A button that is focused stays: it is put back by its key.
    const focused = document.activeElement?.dataset.key;
    this.title.textContent = `Coflow ${found.name}`;
    this.body.replaceChildren(this.lane(found), this.facts(found),
      this.waiting(found, names), this.sends(found, flows, hosts),
      this.members(found), this.events(found));
    if (focused) {
      this.body.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
    }
  }

  // What the coflow sends from a host, by the class of its policy there.
  async flows(host) {
    let found;
    try {
      found = await get(`v1/hosts/${encodeURIComponent(host)}`);
    } catch (error) {
      // The edge module of this host never reported.
      if (error.status === 404) return [];
      throw error;
    }
    return found.classes.filter((one) => one.coflow_id === this.id)
      .map((one) => ({ host, ...one }));
  }

  lane(found) {
    const now = nowS();
    const all = Object.values(times(found, now)).filter((at) => at != null);
    const lane = new Lane();
    if (all.length) {
      lane.show(found, now, [Math.min(...all), Math.max(...all,
        Math.min(...all) + 1)]);
    }
    return lane.element;
  }

  facts(one) {
    const bottleneck = one.planned_bottleneck;
    return facts([['State', one.state], ['Reason', one.why],
      ['Group', one.group_name], ['Project', one.project_id],
      ['Begun', clock(one.arrival)],
      ['Planned time', seconds(one.cct_s)],
      ['Expected end', one.state === 'active' ? clock(one.predicted_end)
        : null],
      ['Measured time', measured(one)],
      ['Lower bound', one.lower_bound_s == null ? null
        : `${seconds(one.lower_bound_s)} (${one.bound_scope})`],
      ['Deadline', one.deadline == null ? null
        : `${clock(one.deadline)}, promised: ${one.promise}`],
      ['Sent', `${size(one.sent_bytes)} of ${size(one.size_bytes)} (${
        share(one.size_bytes ? one.sent_bytes / one.size_bytes : null)})`],
      ['Rate', rate(one.rate_bps)],
      ['Iteration', one.iterations === 1 ? null
        : `${one.iteration + 1} of ${one.iterations || 'an unknown number'}`],
      ['VMs and flows', `${one.n_vms} VMs, ${one.n_flows} flows`],
      ['Planned bottleneck', bottleneck
        && `${bottleneck.level} ${bottleneck.port}, ${bottleneck.direction}`],
      ['Plan', one.plan_notes],
    ]);
  }

  waiting(one, names) {
    const at = one.bottleneck;
    return section('Who waits for whom',
      make('p', {}, at ? `It waits longest at ${at.capped_vm
        ? `the cap of ${at.capped_vm} on ` : ''}${at.host} (${at.direction}), ${
        seconds(at.busy_s)}, with ${one.n_before} coflows before it.`
        : 'It waits for nothing that this viewer may see.'),
      make('ul', {}, ...one.waits_for.map((id) => make('li', {},
        link('coflow', id, names.get(id) ?? id)))));
  }

  sends(one, flows, hosts) {
    if (!hosts.length) return make('span');
    if (flows === null) {
      return section('Flows', make('p', {}, `${hosts.length} hosts; `
        + 'the page of each host has its classes.'));
    }
    return section('Flows', table('Flows', [['From'], ['To'], ['Guaranteed'],
      ['Observed'], ['Queued']], make('tbody', {}, ...flows.map((flow) =>
      row(link('host', flow.host), flow.destinations.join(', '),
        rate(flow.rate_bps), rate(flow.observed_bps),
        size(flow.backlog_bytes))))));
  }

  members(one) {
    return section('VMs', table('VMs', [['Row'], ['Server'], ['State'],
      ['Host'], ['Planned host'], ['Placement']], make('tbody', {},
      ...one.members.map((member) => row(String(member.row),
        member.display_name ?? member.instance_uuid, member.state,
        member.host && link('host', member.host),
        member.planned_host && link('host', member.planned_host),
        member.instance_uuid && make('button', { type: 'button',
          'data-key': member.instance_uuid,
          onclick: () => this.explain(member) },
        `Explain row ${member.row}`))))));
  }

  events(one) {
    if (!one.events.length) return make('span');
    return section('Events', make('ul', {}, ...one.events.map((event) =>
      make('li', {}, `${clock(event.at)} ${event.kind}: ${event.detail}`))));
  }

  // Operators see what decided; tenants the last answer.
  async explain(member) {
    const path = `v1/placements/${encodeURIComponent(member.instance_uuid)}`;
    this.explanation.replaceChildren('asking the planner');
    let found;
    try {
      found = await get(`${path}/explanation`);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      if (error.status === 403) found = await get(path);
      else found = { why: error.message };
    }
    const reasons = found.reasons ?? [];
    this.explanation.replaceChildren(section(
      `Placement of row ${member.row}`,
      facts([['Answer', found.status], ['Reason', found.why],
        ['Host', found.host], ['Planned time of the group',
          seconds(found.cct_s)], ['Bottleneck', found.bottleneck],
        ['No reasons', found.why_not]]),
      make('ul', {}, ...reasons.map((one) => make('li', {}, one.text)))));
  }
}
