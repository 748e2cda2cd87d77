// Chooses the view by the address, and has it look again after events.

import { hasToken, leave, listen, Refused } from './ask.js';
import { Coflow } from './coflow.js';
import { Coflows } from './coflows.js';
import { Host } from './host.js';
import { Network } from './network.js';
import { make, say } from './text.js';

const VIEWS = { coflows: Coflows, network: Network, coflow: Coflow,
  host: Host };
const LEAST_MS = 1000;
const main = document.getElementById('main');
const state = document.getElementById('status');
const button = document.getElementById('leave');
let view = null;
let timer = null;
let isLooking = false;
let isDue = false;

async function look() {
  timer = null;
  if (document.hidden || isLooking) {
    isDue = true;
    return;
  }
  [isLooking, isDue] = [true, false];
  const began = performance.now();
  const asked = view;
  try {
    await asked.look();
    // Put in once: an element that moves loses the focus.
    if (asked === view && !asked.element.isConnected) {
      main.replaceChildren(asked.element);
    }
  } catch (error) {
    if (!(error instanceof Refused) && !(error instanceof TypeError)) {
      throw error;
    }
    if (asked === view && error instanceof Refused) {
      main.replaceChildren(make('h1', { tabindex: -1 }, 'Not shown'),
        make('p', { role: 'alert' }, error.message));
    }
  } finally {
    isLooking = false;
    button.hidden = !hasToken();
    const tookMs = performance.now() - began;
    // A tenth of the time at most, so that a busy controller is spared.
    if (isDue || asked !== view) {
      wait(asked === view ? Math.max(LEAST_MS, 9 * tookMs) : 0);
    }
  }
}

function wait(ms) {
  timer ??= setTimeout(look, ms);
}

function changed() {
  isDue = true;
  if (!isLooking) wait(0);
}

function route() {
  const [, name, id] = location.hash.split('/');
  if (location.hash === '#main') return;
  const Kind = VIEWS[name] ?? Coflows;
  view = new Kind(id === undefined ? id : decodeURIComponent(id));
  for (const one of document.querySelectorAll('nav a')) {
    if (one.hash === `#/${name ?? 'coflows'}`) {
      one.setAttribute('aria-current', 'page');
    } else one.removeAttribute('aria-current');
  }
  main.replaceChildren(view.element);
  if (name !== undefined) main.querySelector('h1')?.focus();
  changed();
}

button.addEventListener('click', leave);
window.addEventListener('hashchange', route);
document.addEventListener('visibilitychange', changed);
route();
listen(changed, (text) => say(state, text));
