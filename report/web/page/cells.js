import { use, room } from './bars.js';
import { el, data, message } from './dom.js';
import { age, bytes, percent } from './format.js';
import { link } from './state.js';
import { badge } from './table.js';

// levels of the phases of nodes, NFS servers, volumes and snapshots.
const levels = {
  Ready: 'fine', Running: 'fine', Pending: 'busy', Deleting: 'busy', Terminating: 'busy', Unknown: 'bad', NotReady: 'bad', Failed: 'bad', Lost: 'bad',
  Unreachable: 'bad', Degraded: 'bad',
};

const words = { NotReady: 'Not ready', Unknown: 'Not heard of' };

// qualified is the name of an object with its namespace, if it has one.
export function qualified(object) {
  return object.namespace ? `${object.namespace}/${object.name}` : object.name;
}

// objectOf is what an event is about.
export function objectOf(event) {
  return `${event.involvedObject.kind} ${qualified(event.involvedObject)}`;
}

export function eventKey(event) {
  return `${objectOf(event)} ${event.reason}`;
}

// condition is the phase of something with what is to be said about it.
export function condition(item) {
  const damaged = item.healthy === false;
  let level = levels[item.phase] ?? 'busy';
  if (damaged || item.level === 'problem') level = 'bad';
  else if (level === 'busy' && (item.attention || item.level === 'warning')) level = 'warning';
  const word = damaged && item.phase === 'Ready' ? 'Damaged' : words[item.phase] ?? item.phase ?? 'Not seen yet';
  return [badge(word, level), item.message ? message(item.message, { class: 'small muted' }) : null];
}

// place is where something is, as a link to what else is there.
export function place(view, field, value, shown = value) {
  return value ? el('a', { href: link({ view, [field]: value }) }, data(shown)) : el('span', { class: 'muted' }, '–');
}

// claimOf shows the claim of a volume, and its name below.
export function claimOf(v) {
  const claim = v.claimRef;
  return [
    claim ? el('span', { class: 'name' }, el('span', { class: 'muted' }, data(`${claim.namespace}/`)), data(claim.name)) : el('span', { class: 'name muted' }, 'no claim'),
    el('span', { class: 'id' }, data(v.name)),
  ];
}

// takes shows how much of a volume is used.
export function takes(v) {
  if (!v.size) return el('span', { class: 'muted' }, '–');
  return el('span', { class: 'takes' }, use(v.used, v.size), el('span', { class: 'figure' }, bytes(v.used), el('span', { class: 'muted' }, ` ${Math.round(percent(v.used, v.size))}%`)));
}

export function since(time) {
  return time ? el('time', { datetime: time, title: time }, age(time)) : el('span', { class: 'muted' }, '–');
}

// amounts of a pool, below its bar.
export function roomOf(of, name) {
  return [
    room(of, name),
    el('span', { class: 'amounts' },
      el('span', {}, el('b', {}, bytes(of.used)), ' used'), el('span', {}, el('b', {}, bytes(of.promised)), ' promised'),
      el('span', {}, el('b', {}, bytes(of.available)), ' free'), el('span', { class: 'muted' }, `of ${bytes(of.capacity)}`)),
  ];
}

export function nodeName(item) {
  if (item.serverRef) return [data(qualified(item.serverRef)), el('span', { class: 'tag' }, 'NFS')];
  return item.cephPool ? [data(item.cephPool), el('span', { class: 'tag' }, 'Ceph')] : [data(item.node ?? item.name)];
}

// siteName is where something is, in a sentence.
export function siteName(item) {
  return item.serverRef ? qualified(item.serverRef) : item.cephPool ? 'Ceph' : item.node;
}


