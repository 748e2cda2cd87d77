// Requests to the API.
//
// A browser has no token of keystone. The viewer gives one, the tab keeps it
// in sessionStorage, and each request sends it as the CLI does: no cookie, so
// no other site can use it.

const BASE = new URL('../', new URL('.', location.href));
const KEY = 'virtco-token';
const dialog = document.getElementById('ask');
let asking = null;

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

export const hasToken = () => sessionStorage.getItem(KEY) !== null;

export function leave() {
  sessionStorage.removeItem(KEY);
  location.reload();
}

// One dialog for all requests that were refused meanwhile.
function askForToken() {
  asking ??= new Promise((resolve) => {
    const field = document.getElementById('token');
    field.value = '';
    dialog.addEventListener('close', () => {
      if (field.value) sessionStorage.setItem(KEY, field.value.trim());
      field.value = '';
      asking = null;
      resolve();
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}

async function send(path, options = {}) {
  for (;;) {
    const token = sessionStorage.getItem(KEY);
    const response = await fetch(new URL(path, BASE), {
      cache: 'no-store', ...options,
      headers: token === null ? {} : { 'X-Auth-Token': token } });
    if (response.status !== 401) return response;
    if (sessionStorage.getItem(KEY) === token) {
      sessionStorage.removeItem(KEY);
      await askForToken();
    }
  }
}

let aheadMs = 0;

// Seconds since the epoch by the controller's clock.
export const nowS = () => (Date.now() + aheadMs) / 1000;

export async function get(path) {
  for (;;) {
    const response = await send(path);
    const wait = response.status === 429
      && Number(response.headers.get('Retry-After'));
    if (wait) {
      await new Promise((resolve) => { setTimeout(resolve, 1000 * wait); });
      continue;
    }
    const date = Date.parse(response.headers.get('Date'));
    // The header tells whole seconds.
    if (Math.abs(date - Date.now()) > 2000) aheadMs = date - Date.now();
    const found = await response.json();
    if (response.ok) return found;
    throw new Refused(response.status, found.error?.detail ?? found.title
      ?? response.statusText);
  }
}
