import { get, Failure } from './api.js';
import { el, data, plain, reconcile } from './dom.js';
import { count, duration } from './format.js';
import { events, pools, servers, snapshots, volumes } from './lists.js';
import { overview } from './overview.js';
import { link, read, views } from './state.js';

// The report is asked for every few seconds; a few bytes say that nothing has changed. A stream would hold one of the few
// answers that the controller makes at once, for each page that is open.
const every = 5;
const slowest = 60;
const staleAfter = 20; // seconds without an answer
const apiServerSilent = 60; // seconds: every node renews its Lease each 10

const makers = { overview, pools, volumes, snapshots, servers, events };

const main = document.getElementById('main');
const notices = document.getElementById('notices');
const seen = document.getElementById('seen');
const dot = document.getElementById('dot');
const nav = document.getElementById('views');

let state = read(location.search);
let view; // what is built for the state's view
let report = null; // the last one
let request = 0; // the last one; the answers of those before it are of no use
let timer;
let failures = 0;
let failure = null;
let last = 0; // when it answered
let silent = 0; // seconds for which the API server had been silent then
let ended = false; // by a failure after which asking again would be wrong

function build() {
  view = makers[state.view](navigate);
  reconcile(main, [el('p', { class: 'muted loading' }, 'Loading …')]);
}

// navigate shows another state. While somebody types, each is not a step of its own for the back button.
function navigate(to, { replace = false } = {}) {
  history[replace ? 'replaceState' : 'pushState'](null, '', link(to));
  arrive();
}

function arrive() {
  const before = state.view;
  state = read(location.search);
  if (before !== state.view) {
    build();
    window.scrollTo(0, 0);
  }
  view.adopt(state);
  if (report) show();
  else showViews();
}

function showViews() {
  const counts = report && { volumes: report.volumes.length, snapshots: report.snapshots.length };
  if (!nav.childNodes.length) nav.append(...Object.entries(views).map(([name, title]) => el('a', { href: link({ view: name }), 'data-view': name }, title, el('span', { class: 'count' }))));
  for (const a of nav.children) {
    const name = a.dataset.view;
    if (name === state.view) {
      a.setAttribute('aria-current', 'page');
      nav.scrollLeft = a.offsetLeft - nav.offsetLeft - 24; // where it does not fit
    } else a.removeAttribute('aria-current');
    if (counts && counts[name] !== undefined) a.querySelector('.count').textContent = count(counts[name]);
  }
}

async function refresh() {
  clearTimeout(timer);
  if (ended) return;
  const mine = ++request;
  try {
    const answer = await get();
    if (mine !== request) return;
    [failures, failure, last, silent, report] = [0, null, Date.now(), answer.age, answer.report];
    show();
  } catch (error) {
    if (mine !== request) return;
    failures++;
    failure = error instanceof Failure ? error : new Failure(-1, String(error));
    ended = failure.status === 401;
  }
  const wait = failure ? Math.max(failure.after, Math.min(every * 2 ** (failures - 1), slowest)) * (1 + Math.random() / 5) : every;

  tick();
  if (!document.hidden && !ended) timer = setTimeout(refresh, 1000 * wait);
}

function show() {
  view.update(report, state);
  reconcile(main, [view.node]);
  showViews();
  const { cluster, findings } = report;
  document.getElementById('version').textContent = plain([cluster?.oldestVersion, cluster?.version].filter(Boolean).join(' to '));
  const bad = findings.length ? `(${findings.length}) ` : '';
  document.title = `${bad}${views[state.view]} · Holdfast`;
}

// tick says how old is what is shown, every second: it is never shown as fresh when it is not.
function tick() {
  const old = last ? (Date.now() - last) / 1000 : Infinity;
  const behind = old + silent;
  const stale = failure !== null || old > staleAfter;
  dot.className = `dot ${stale ? 'bad' : silent > apiServerSilent ? 'warning' : 'fine'}`;
  if (!last) seen.textContent = failure ? 'No answer yet' : 'Loading';
  else seen.textContent = stale ? `Last seen ${duration(old)} ago` : silent > apiServerSilent ? `As of ${duration(behind)} ago` : 'Live';
  const texts = [];
  if (failure) texts.push(['bad', explain(), !ended]);
  else if (silent > apiServerSilent) texts.push(['warning', 'The controller does not hear from the API server of Kubernetes. What is shown may be as old as is said above.', false]);
  showNotices(texts);
}

function explain() {
  const shown = last ? ' What is shown is old.' : '';
  switch (failure.status) {
    case 0: return `The controller does not answer.${shown}`;
    case 401: return `The user or the password is not right any more.${shown} Reload this page to log in.`;
    case -1: return `This page has met an error of its own: ${failure.message}`;
    default: return `${failure.message}${shown}`;
  }
}

// A screen reader reads a notice when it comes or changes, so no seconds are counted in it.
let note = '';

function showNotices(texts) {
  const now = JSON.stringify(texts);
  if (note === now) return;
  note = now;
  reconcile(notices, texts.map(([level, text, again]) => el('div', { class: `notice ${level}` }, data(text), again ? el('button', { type: 'button', click: refresh }, 'Try now') : null)));
}

document.addEventListener('click', (event) => {
  const a = event.target.closest?.('a[href]');
  if (!a || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const to = new URL(a.href);
  if (to.origin !== location.origin || to.pathname !== location.pathname || to.hash || a.classList.contains('skip')) return;
  event.preventDefault();
  navigate(read(to.search));
});
addEventListener('popstate', arrive);
// A page that is not looked at asks nothing. When it is looked at again, or the network is back, it asks at once.
document.addEventListener('visibilitychange', () => (document.hidden ? clearTimeout(timer) : refresh()));
addEventListener('online', refresh);
addEventListener('pageshow', (event) => { if (event.persisted) refresh(); });
setInterval(tick, 1000);

build();
view.adopt(state);
showViews();
refresh();
