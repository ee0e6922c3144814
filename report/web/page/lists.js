import { condition, claimOf, eventKey, nodeName, objectOf, place, qualified, roomOf, since, siteName, takes } from './cells.js';
import { legend } from './bars.js';
import { el, data, message } from './dom.js';
import { bytes, count } from './format.js';
import { badness, created, select, share, sorted } from './select.js';
import { link } from './state.js';
import { listView, table } from './table.js';

const phases = { Ready: 'Ready', Pending: 'Pending', Deleting: 'Deleting', Unreachable: 'Unreachable', Failed: 'Failed', Lost: 'Lost' };
const serverPhases = ['Running', 'Pending', 'Degraded', 'Terminating'];
const nodePhases = ['Ready', 'NotReady', 'Unknown']; // the worst last
const attention = { field: 'attention', title: 'Show', any: 'all', values: { true: 'needs attention', false: 'all is well' } };
const phase = (values) => ({ field: 'phase', title: 'Phase', any: 'any', values });

export function volumes(navigate) {
  return listView({
    title: 'Volumes', noun: 'volume', searches: 'claim, node, pool …', empty: 'There is no volume yet. A claim of a class of Holdfast makes one.',
    part: 'volumes', key: (v) => v.name, choices: [phase(phases), attention],
    words: (v) => [v.name, v.claimRef ? qualified(v.claimRef) : '', v.node, siteName(v), v.pool, v.phase],
    filters: { phase: (v) => v.phase, attention: (v) => String(v.attention), node: (v) => v.node, pool: (v) => v.pool },
    orders: {
      claim: (v) => (v.claimRef ? qualified(v.claimRef) : ''), node: (v) => v.node, pool: (v) => v.pool ?? '', size: (v) => v.size, used: (v) => v.used,
      use: (v) => share(v.used, v.size), phase: badness, creationTime: created,
    },
    sorts: { claim: 'by claim', '-size': 'largest first', '-used': 'most used first', '-use': 'fullest first', '-phase': 'worst first', '-creationTime': 'newest first' },
    columns: () => [
      { title: 'Claim', sort: 'claim', wide: true, show: claimOf },
      { title: 'Node', sort: 'node', show: (v) => place('volumes', 'node', v.node, siteName(v)) },
      { title: 'Pool', sort: 'pool', show: (v) => place('volumes', 'pool', v.pool) },
      { title: 'Size', sort: 'size', number: true, show: (v) => (v.size ? bytes(v.size) : el('span', { class: 'muted' }, '–')) },
      { title: 'Used', sort: 'use', number: true, show: takes },
      { title: 'Condition', sort: 'phase', wide: true, show: condition },
      { title: 'Age', sort: 'creationTime', number: true, show: (v) => since(v.creationTime) },
    ],
  }, navigate);
}

export function snapshots(navigate) {
  return listView({
    title: 'Snapshots', noun: 'snapshot', searches: 'snapshot, volume, node …', empty: 'There is no snapshot yet.',
    part: 'snapshots', key: (s) => s.name, choices: [phase(phases), attention],
    words: (s) => [s.name, s.sourceRef.name, s.group, s.node, s.pool, s.phase],
    filters: {
      phase: (s) => s.phase, attention: (s) => String(s.attention), node: (s) => s.node, pool: (s) => s.pool, volume: (s) => s.sourceRef.name,
    },
    orders: {
      volume: (s) => s.sourceRef.name, node: (s) => s.node, pool: (s) => s.pool ?? '', size: (s) => s.size, used: (s) => s.used, phase: badness, creationTime: created,
    },
    sorts: { volume: 'by volume', '-used': 'most used first', '-phase': 'worst first', '-creationTime': 'newest first' },
    columns: () => [
      { title: 'Snapshot', wide: true, show: (s) => [el('span', { class: 'name' }, data(s.name)), s.group ? el('span', { class: 'id' }, 'group ', data(s.group)) : null] },
      { title: 'Volume', sort: 'volume', wide: true, show: (s) => place('volumes', 'search', s.sourceRef.name) },
      { title: 'Node', sort: 'node', show: (s) => place('snapshots', 'node', s.node) },
      { title: 'Pool', sort: 'pool', show: (s) => place('snapshots', 'pool', s.pool) },
      { title: 'Size', sort: 'size', number: true, show: (s) => bytes(s.size) },
      { title: 'Keeps', sort: 'used', number: true, show: (s) => bytes(s.used) },
      { title: 'Condition', sort: 'phase', wide: true, show: condition },
      { title: 'Age', sort: 'creationTime', number: true, show: (s) => since(s.creationTime) },
    ],
  }, navigate);
}

export function servers(navigate) {
  return listView({
    title: 'NFS servers', noun: 'NFS server', searches: 'server, node, address …', empty: 'There is no NFSServer. One serves volumes that many nodes use at once.',
    part: 'nfsServers', key: qualified, choices: [phase(Object.fromEntries(serverPhases.map((name) => [name, name])))],
    words: (s) => [qualified(s), s.phase, s.node, s.endpoint, s.claimName],
    filters: { phase: (s) => s.phase, node: (s) => s.node },
    orders: {
      phase: (s) => serverPhases.indexOf(s.phase), node: (s) => s.node ?? '', capacity: (s) => s.capacity, promised: (s) => s.promised, exports: (s) => s.exports, clients: (s) => s.clients,
    },
    sorts: { '-phase': 'worst first', '-clients': 'most clients first', '-promised': 'most promised first' },
    columns: () => [
      { title: 'Server', wide: true, show: (s) => [el('span', { class: 'name' }, data(qualified(s))), s.endpoint ? el('span', { class: 'id' }, data(s.endpoint + (s.path ?? ''))) : null] },
      { title: 'Node', sort: 'node', show: (s) => place('servers', 'node', s.node) },
      { title: 'Access', show: (s) => data(s.access ?? '–') },
      { title: 'Exports', sort: 'exports', number: true, show: (s) => count(s.exports) },
      { title: 'Clients', sort: 'clients', number: true, show: (s) => count(s.clients) },
      { title: 'Promised', sort: 'promised', number: true, show: (s) => (s.capacity ? [bytes(s.promised), el('span', { class: 'muted' }, ` of ${bytes(s.capacity)}`)] : '–') },
      { title: 'Condition', sort: 'phase', wide: true, show: condition },
      { title: 'Age', number: true, show: (s) => since(s.creationTimestamp) },
    ],
  }, navigate);
}

export function events(navigate) {
  return listView({
    title: 'Events', noun: 'event', searches: 'object, reason, message …', empty: 'No warning came in the time for which Kubernetes keeps events, which is an hour unless configured otherwise.',
    part: 'events', key: eventKey, words: (e) => [objectOf(e), e.reason, e.message],
    columns: () => [
      { title: 'Last', show: (e) => since(e.lastTimestamp) },
      { title: 'Times', number: true, show: (e) => count(e.count) },
      { title: 'Object', show: (e) => data(objectOf(e)) },
      { title: 'Reason', show: (e) => data(e.reason, { class: 'strong' }) },
      { title: 'Message', wide: true, show: (e) => data(e.message) },
    ],
  }, navigate);
}

const poolKey = (p) => `${p.node}/${p.name}`;

// poolsOf are the pools of all nodes, in the order of their names.
export function poolsOf(report) {
  return sorted(report.nodes.flatMap((n) => n.pools), { key: poolKey }, 'key');
}

export const poolOrders = {
  pool: (p) => p.name, capacity: (p) => p.capacity, promised: (p) => p.promised, used: (p) => p.used, available: (p) => p.available, volumes: (p) => p.volumes,
  use: (p) => share(p.used, p.capacity),
};

const nodeList = {
  words: (n) => [n.name, siteName(n), n.phase, n.version], filters: { node: (n) => n.name }, orders: { phase: (n) => nodePhases.indexOf(n.phase) },
};

// pools shows the nodes as well: both are few beside the volumes, and belong together. Only the pools have pages.
export function pools(navigate) {
  const nodes = table('node', [
    { title: 'Node', wide: true, show: (n) => el('span', { class: 'name' }, nodeName(n)) },
    { title: 'Volumes', number: true, show: (n) => el('a', { href: link({ view: 'volumes', node: n.name }) }, count(n.volumes)) },
    { title: 'Version', show: (n) => data(n.version ?? '–') },
    { title: 'Condition', wide: true, show: condition },
  ], (n) => n.name, 'No node stores yet. The nodes that spec.nodeSelectorTerms of the StorageCluster chooses appear here when their agents run.');
  const list = listView({
    title: 'Nodes and pools', noun: 'pool', searches: 'node, pool, path …', empty: 'There is no pool yet.',
    above: [nodes.node, el('h3', { class: 'title' }, 'Pools'), legend()],
    items: poolsOf, key: poolKey, words: (p) => [p.node, siteName(p), p.name, p.path, p.engine],
    filters: { node: (p) => p.node, pool: (p) => p.name }, orders: poolOrders,
    sorts: { '-use': 'fullest first', available: 'least free first', '-promised': 'most promised first' },
    columns: () => [
      { title: 'Pool', sort: 'pool', show: (p) => [el('span', { class: 'name' }, data(p.name)), el('span', { class: 'id' }, nodeName(p))] },
      { title: 'Room', sort: 'use', wide: true, show: (p) => [roomOf(p, `Pool ${p.name} of ${siteName(p)}`), p.message ? message(p.message, { class: 'small bad' }) : null] },
      { title: 'Free', sort: 'available', number: true, show: (p) => bytes(p.available) },
      { title: 'Volumes', sort: 'volumes', number: true, show: (p) => el('a', { href: link({ view: 'volumes', node: p.node, pool: p.name }) }, count(p.volumes)) },
      { title: 'Kept in', show: (p) => [data(p.path ?? ''), el('span', { class: 'id' }, data(p.engine ?? ''))] },
    ],
  }, navigate);
  return {
    node: list.node,
    adopt: list.adopt,
    update(report, state) {
      const { search, node } = state;
      nodes.update(select(report.nodes, nodeList, { search, node, sort: '-phase' }), { view: 'pools', search });
      list.update(report, state);
    },
  };
}
