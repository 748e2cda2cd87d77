// Elements and texts that all views share. Names from the API become text
// nodes only, never HTML.

export function make(tag, values = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(values)) {
    if (name === 'class') made.className = value;
    else if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, '');
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const PREFIXES = ['', 'k', 'M', 'G', 'T', 'P'];

function scaled(value, unit) {
  if (value == null) return '–';
  let i = 0;
  while (Math.abs(value) >= 999.5 && i < PREFIXES.length - 1) {
    value /= 1000;
    i += 1;
  }
  return `${Number(value.toPrecision(3))} ${PREFIXES[i]}${unit}`;
}

export const rate = (bps) => scaled(bps, 'bit/s');
export const size = (bytes) => scaled(bytes, 'B');
export const share = (part) => (part == null ? '–'
  : `${Math.round(100 * part)} %`);

export function seconds(value) {
  if (value == null) return '–';
  return value < 100 ? `${Number(value.toPrecision(3))} s`
    : `${Math.round(value)} s`;
}

export function clock(at) {
  return at == null ? '–' : new Date(1000 * at).toLocaleTimeString('en-GB');
}

// Link to a view of this page.
export function link(view, id, text = id) {
  return make('a', { href: `#/${view}/${encodeURIComponent(id)}` }, text);
}

// A table with its caption for screen readers and its head.
export function table(label, heads, body) {
  return make('div', { class: 'wide', role: 'region', 'aria-label': label,
    tabindex: 0 }, make('table', { 'aria-label': label },
    make('thead', {}, make('tr', {}, ...heads.map(([text, kind]) =>
      make('th', { scope: 'col', class: kind ?? '' }, text)))), body));
}

export function facts(pairs) {
  return make('dl', {}, ...pairs.filter(([, value]) => value != null
    && value !== '').flatMap(([name, value]) => [
    make('dt', {}, name), make('dd', {}, value)]));
}
