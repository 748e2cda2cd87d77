// Chooses the view by the address, and has it look again each second.

import { hasToken, leave, Refused } from './ask.js';
import { Coflow } from './coflow.js';
import { Coflows } from './coflows.js';
import { Host } from './host.js';
import { Network } from './network.js';
import { make, say } from './text.js';

const VIEWS = { coflows: Coflows, network: Network, coflow: Coflow,
  host: Host };
const PAUSE_MS = 1000;
const main = document.getElementById('main');
const state = document.getElementById('status');
const button = document.getElementById('leave');
let view = null;
let timer = null;
let isLooking = false;

async function look() {
  timer = null;
  if (document.hidden) return;
  isLooking = true;
  const began = performance.now();
  const asked = view;
  try {
    await asked.look();
    say(state, 'live');
    // Put in once: an element that moves loses the focus.
    if (asked === view && !asked.element.isConnected) {
      main.replaceChildren(asked.element);
    }
  } catch (error) {
    // A proxy answers with HTML while the controller is away.
    if (error instanceof TypeError || error instanceof SyntaxError) {
      say(state, 'no connection; trying again');
    } else if (!(error instanceof Refused)) {
      throw error;
    } else if (asked === view) {
      main.replaceChildren(make('h1', { tabindex: -1 }, 'Not shown'),
        make('p', { role: 'alert' }, error.message));
    }
  } finally {
    isLooking = false;
    button.hidden = !hasToken();
    const tookMs = performance.now() - began;
    // A tenth of the time at most, so that a busy controller is spared.
    wait(asked === view ? Math.max(PAUSE_MS, 9 * tookMs) : 0);
  }
}

function wait(ms) {
  timer ??= setTimeout(look, ms);
}

// A look that is under way sees by itself that the view is another one.
function lookNow() {
  if (isLooking) return;
  clearTimeout(timer);
  timer = null;
  wait(0);
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
  lookNow();
}

button.addEventListener('click', leave);
window.addEventListener('hashchange', route);
document.addEventListener('visibilitychange', lookNow);
route();
