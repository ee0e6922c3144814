import { legend, progress } from './bars.js';
import { eventKey, objectOf, place, qualified, roomOf, since, siteName } from './cells.js';
import { el, data, message, plain, reconcile, remembering } from './dom.js';
import { count, many } from './format.js';
import { poolOrders, poolsOf } from './lists.js';
import { sorted } from './select.js';
import { link } from './state.js';
import { badge, panel, unknown } from './table.js';

const some = 8; // lines of a part; the rest is behind a link

// targets are the views that show the objects of a kind.
function target(f) {
  switch (f.kind) {
    case 'Volume': return link({ view: 'volumes', ...(f.count > 1 ? { phase: f.phase, attention: 'true' } : { search: f.name }) });
    case 'Snapshot': return link({ view: 'snapshots', ...(f.count > 1 ? { phase: f.phase, attention: 'true' } : { search: f.name }) });
    case 'NFSServer': return link({ view: 'servers', search: qualified(f) });
    case 'StorageNode': return link({ view: 'pools', search: f.name });
    case 'CephPool': return link({ view: 'pools', search: f.name });
    case 'Pool': return link({ view: 'pools', search: `${f.node} ${f.name}` });
    default: return null;
  }
}

const kinds = { StorageNode: 'Node', NFSServer: 'NFS server', CephPool: 'Ceph pool', StorageCluster: 'StorageCluster', StorageUpgrade: 'Upgrade', NodeJob: 'Job' };

// nameOf is the name of what is found or done, with the node of a pool.
function nameOf(item) {
  return item.kind === 'Pool' ? `${item.node}/${item.name}` : qualified({ namespace: item.namespace, name: item.name ?? '' });
}

function titleOf(f) {
  if (f.count > 1) return [`${many(f.count, f.kind.toLowerCase())} `, f.phase === 'Ready' ? 'damaged' : (f.phase ?? '').toLowerCase()];
  const kind = kinds[f.kind] ?? f.kind;
  return [`${kind} `, data(nameOf(f))];
}

function findingLine(f) {
  const to = target(f);
  const title = titleOf(f);
  return el('li', { class: `finding ${f.level}` },
    el('span', { class: 'mark', 'aria-hidden': 'true' }),
    el('div', {}, el('p', { class: 'strong' }, el('span', { class: 'sr' }, `${f.level}: `), to ? el('a', { href: to }, title) : title), message(f.message, { class: 'muted' })));
}

const verbs = { Create: 'Creating', Grow: 'Growing', Delete: 'Deleting', Restore: 'Restoring', Replace: 'Replacing', Upgrade: 'Upgrade', RollBack: 'Rolling back', Run: 'Job' };

function operationLine(o) {
  return el('li', { class: 'operation' },
    badge(verbs[o.verb] ?? o.verb, 'busy'),
    el('div', {},
      el('p', {}, el('span', { class: 'strong' }, ['StorageUpgrade', 'NodeJob'].includes(o.kind) ? '' : `${kinds[o.kind] ?? o.kind} `, data(o.claimRef ? qualified(o.claimRef) : nameOf(o))), o.node ? [' on ', data(o.node)] : null),
      o.message ? message(o.message, { class: 'muted small' }) : null,
      o.desiredNodes ? el('p', { class: 'steps' }, progress(o.doneNodes, o.desiredNodes), el('span', { class: 'muted small' }, `${count(o.doneNodes)} of ${many(o.desiredNodes, 'node')}`)) : null),
    el('span', { class: 'muted small' }, o.startTime ? since(o.startTime) : ''));
}

function eventLine(e) {
  return el('li', { class: 'event' },
    el('span', { class: 'when muted' }, since(e.lastTimestamp)),
    el('div', {}, el('p', {}, data(e.reason, { class: 'strong' }), ' ', data(objectOf(e), { class: 'muted' }), e.count > 1 ? el('span', { class: 'muted' }, ` ×${count(e.count)}`) : null), message(e.message, { class: 'muted small' })));
}

function nodeCell(n) {
  return el('li', {}, el('a', { class: `node ${n.ready ? 'fine' : 'bad'}`, href: link({ view: 'pools', search: n.name }) },
    el('span', { class: 'dot', 'aria-hidden': 'true' }), el('span', { class: 'grow' }, data(n.name)), el('span', { class: 'sr' }, n.ready ? 'ready' : 'not ready')));
}

// nodesOf are the nodes of the cluster, first those that are not ready. Of these the cluster knows more than their agents.
function nodesOf({ cluster, nodes }) {
  if (!cluster) return [];
  const all = new Map(nodes.filter((n) => !n.serverRef && !n.cephPool).map((n) => [n.name, n]));
  cluster.nodes.forEach((n) => all.set(n.name, n));
  return [...all.values()].sort((a, b) => a.ready - b.ready);
}

function poolLine(p) {
  return el('li', { class: 'pool' }, el('p', {}, place('pools', 'search', `${p.node} ${p.name}`, p.name), el('span', { class: 'muted' }, ' on ', data(siteName(p)))),
    roomOf(p, `Pool ${p.name} of ${siteName(p)}`), p.message ? message(p.message, { class: 'small bad' }) : null);
}

// headline says in one sentence how it is.
function headline(cluster, findings) {
  const bad = findings.filter((f) => f.level === 'problem').length;
  const level = bad > 0 ? 'bad' : findings.length > 0 ? 'warning' : 'fine';
  const text = bad > 0 ? many(bad, 'problem') : findings.length > 0 ? many(findings.length, 'warning') : cluster.desiredNodes ? 'All is well' : 'No node stores yet';
  return el('div', { class: `headline ${level}` }, el('span', { class: 'dot', 'aria-hidden': 'true' }),
    el('div', {}, el('p', { class: 'state' }, text), el('p', { class: 'muted' }, data(cluster.name), ' is ', plain(cluster.phase ?? 'not looked at yet').toLowerCase(), cluster.upgrade ? [', upgrade ', data(cluster.upgrade)] : null)));
}

function tile(title, value, of, to) {
  return el('a', { class: 'tile', href: to }, el('span', { class: 'muted small' }, title), el('span', { class: 'value' }, value, of ? el('span', { class: 'muted' }, of) : null));
}

// part is a panel with a list of lines, the first few of them.
function part(title, make, key, to, none, attributes) {
  const box = panel(title, attributes);
  const lines = remembering(make);
  const list = el('ul', { class: 'lines' });
  const more = el('p', { class: 'more' });
  const empty = el('p', { class: 'muted empty' }, none);
  return {
    node: box.node,
    box,
    update(all, most = some) {
      const items = all.slice(0, most);
      box.node.hidden = !none && items.length === 0;
      box.note(all.length > 1 ? count(all.length) : '');
      reconcile(list, lines(items, key));
      const rest = all.length - items.length;
      reconcile(more, rest > 0 ? [to ? el('a', { href: to }, `${count(rest)} more`) : el('span', { class: 'muted' }, `and ${count(rest)} more`)] : []);
      return box.show(...(items.length ? [list] : [empty]), ...(rest > 0 ? [more] : []));
    },
  };
}

export function overview() {
  const top = el('div', { class: 'top' });
  const missing = el('div', {});
  const attention = part('Needs attention', findingLine, (f) => `${f.kind} ${nameOf(f)} ${f.phase}`, null, null, { class: 'panel wide' });
  const doing = part('Being done now', operationLine, (o) => `${o.verb} ${o.kind} ${nameOf(o)}`, null, 'Nothing is being made, grown, removed or upgraded.', { class: 'panel' });
  const warned = part('Events', eventLine, eventKey, link({ view: 'events' }), 'No warning came lately.', { class: 'panel' });
  const nodes = part('Nodes', nodeCell, (n) => n.name, link({ view: 'pools' }), 'No node stores yet. The nodes that the StorageCluster selects appear here.', { class: 'panel nodes' });
  const pools = part('Pools, fullest first', poolLine, (p) => `${p.node}/${p.name}`, link({ view: 'pools', sort: '-use' }), 'There is no pool yet.', { class: 'panel pools' });
  pools.node.insertBefore(legend(), pools.node.lastChild);
  const parts = el('div', { class: 'parts' }, attention.node, el('div', { class: 'column' }, nodes.node, pools.node), el('div', { class: 'column' }, doing.node, warned.node));
  return {
    node: el('div', {}, missing, top, parts),
    adopt: () => {},
    update(report) {
      const { cluster, findings, operations, events, nfsServers } = report;
      attention.update(findings, 20);
      doing.update(operations);
      if (events) warned.update(events);
      else warned.box.show(unknown('events', report, 'events'));
      pools.update(sorted(poolsOf(report), poolOrders, '-use'));
      reconcile(missing, cluster ? [] : [el('p', { class: 'notice warning' }, 'There is no StorageCluster; kubectl apply one.')]);
      nodes.update(nodesOf(report), 60);
      if (!cluster) return reconcile(top, []);
      return reconcile(top, [
        headline(cluster, findings),
        el('div', { class: 'tiles' },
          tile('Nodes ready', count(cluster.readyNodes), ` of ${count(cluster.desiredNodes)}`, link({ view: 'pools' })),
          tile('Volumes', count(report.volumes.length), '', link({ view: 'volumes' })),
          tile('Snapshots', count(report.snapshots.length), '', link({ view: 'snapshots' })),
          tile('NFS servers', nfsServers ? count(nfsServers.length) : '–', '', link({ view: 'servers' }))),
        el('div', { class: 'total' }, el('p', { class: 'muted small' }, 'All pools of nodes that can be used'), roomOf(cluster, 'All pools')),
      ]);
    },
  };
}
