import { el } from './dom.js';
import { bytes, percent } from './format.js';

// segment is a part of a bar. Its width is set by the style of the element itself, which the policy of the page allows,
// unlike an attribute.
function segment(kind, share) {
  const node = el('span', { class: kind });
  node.style.width = `${share}%`;
  return node;
}

// room is the bar of a pool: what is used, within what is promised, within what there is. What is promised beyond that is
// shown too.
export function room(of, name) {
  const whole = Math.max(of.capacity, of.promised, of.used, 1);
  const used = percent(of.used, of.capacity);
  const level = used >= 95 ? 'bad' : used >= 85 ? 'warning' : 'fine';
  const bar = el('span', {
    class: `bar ${level}`, role: 'img',
    'aria-label': `${name}: ${bytes(of.used)} used, ${bytes(of.promised)} promised, ${bytes(of.available)} free, of ${bytes(of.capacity)}`,
  }, segment('promised', percent(of.promised, whole)), segment('used', percent(of.used, whole)));
  if (of.promised > of.capacity) {
    const end = el('span', { class: 'capacity' });
    end.style.left = `${percent(of.capacity, whole)}%`;
    bar.append(end);
  }
  return bar;
}

// use is the bar of a volume.
export function use(used, size) {
  const share = percent(used, size);
  const level = share >= 95 ? 'bad' : share >= 85 ? 'warning' : 'fine';
  return el('span', { class: `bar small ${level}`, role: 'img', 'aria-label': size > 0 ? `${Math.round(share)}% of its size is used` : 'its size is not known' }, segment('used', share));
}

// progress is how much of something is done.
export function progress(done, total) {
  return el('span', { class: 'bar small fine', role: 'img', 'aria-label': `${done} of ${total} done` }, segment('used', percent(done, total)));
}

export function legend() {
  return el('p', { class: 'legend muted' }, ['used', 'promised', 'free'].map((kind) => el('span', {}, el('span', { class: `key ${kind}`, 'aria-hidden': 'true' }), kind)));
}
