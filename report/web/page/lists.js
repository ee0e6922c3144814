import { condition, claimOf, eventKey, nodeName, objectOf, place, qualified, roomOf, since, siteName, takes } from './cells.js';
import { legend } from './bars.js';
import { el, data, message, reconcile } from './dom.js';
import { bytes, count } from './format.js';
import { link, query } from './state.js';
import { listView, table, unknown } from './table.js';
import { Failure } from './api.js';

const phases = { Ready: 'Ready', Pending: 'Pending', Deleting: 'Deleting', Unreachable: 'Unreachable', Failed: 'Failed', Lost: 'Lost' };
const attention = { field: 'attention', title: 'Show', any: 'all', values: { true: 'needs attention', false: 'all is well' } };
const phase = (values) => ({ field: 'phase', title: 'Phase', any: 'any', values });

export function volumes(navigate) {
  return listView({
    title: 'Volumes', noun: 'volume', searches: 'claim, node, pool …', empty: 'There is no volume yet. A claim of a class of Holdfast makes one.',
    path: (state) => query('volumes', state, 'sort', 'phase', 'attention', 'node', 'pool'), key: (v) => v.name, filters: [phase(phases), attention],
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
    path: (state) => query('snapshots', state, 'sort', 'phase', 'attention', 'node', 'pool', 'volume'), key: (s) => s.name, filters: [phase(phases), attention],
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
    path: (state) => query('nfsservers', state, 'sort', 'phase', 'node'), key: qualified,
    filters: [phase({ Running: 'Running', Pending: 'Pending', Degraded: 'Degraded', Terminating: 'Terminating' })],
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
    path: (state) => query('events', state), key: eventKey,
    columns: () => [
      { title: 'Last', show: (e) => since(e.lastTimestamp) },
      { title: 'Times', number: true, show: (e) => count(e.count) },
      { title: 'Object', show: (e) => data(objectOf(e)) },
      { title: 'Reason', show: (e) => data(e.reason, { class: 'strong' }) },
      { title: 'Message', wide: true, show: (e) => data(e.message) },
    ],
  }, navigate);
}

// pools shows the nodes as well: both are few beside the volumes, and belong together. Only the pools have pages.
export function pools(navigate) {
  const nodes = table('node', [
    { title: 'Node', wide: true, show: (n) => el('span', { class: 'name' }, nodeName(n)) },
    { title: 'Volumes', number: true, show: (n) => el('a', { href: link({ view: 'volumes', node: n.name }) }, count(n.volumes)) },
    { title: 'Version', show: (n) => data(n.version ?? '–') },
    { title: 'Condition', wide: true, show: condition },
  ], (n) => n.name, 'No node stores yet. The nodes that spec.nodeSelectorTerms of the StorageCluster chooses appear here when their agents run.');
  const nodesBody = el('div', {});
  const list = listView({
    title: 'Nodes and pools', noun: 'pool', searches: 'node, pool, path …', empty: 'There is no pool yet.',
    above: [nodesBody, el('h3', { class: 'title' }, 'Pools'), legend()],
    path: (state) => query('pools', state, 'sort', 'node', 'pool'), key: (p) => `${p.node}/${p.name}`,
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
    paths: (state) => ({ ...list.paths(state), nodes: query('nodes', { search: state.search, node: state.node, sort: '-phase' }, 'sort', 'node') }),
    adopt: list.adopt,
    update(parts, state) {
      if (parts.nodes instanceof Failure) reconcile(nodesBody, [unknown(parts.nodes)]);
      else {
        nodes.update(parts.nodes, { view: 'pools', search: state.search });
        reconcile(nodesBody, [nodes.node]);
      }
      list.update(parts, state);
    },
  };
}
