const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];

// bytes in the unit that leaves at most three digits before the point.
export function bytes(n) {
  let unit = 0;
  let value = Math.max(n, 0);
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${value.toLocaleString('en', { maximumFractionDigits: value < 100 && unit > 0 ? 1 : 0 })} ${units[unit]}`;
}

export function count(n) {
  return n.toLocaleString('en');
}

// many is a number with its noun.
export function many(n, noun, plural = noun + 's') {
  return `${count(n)} ${n === 1 ? noun : plural}`;
}

export function percent(part, whole) {
  return whole > 0 ? Math.min(Math.max((100 * part) / whole, 0), 100) : 0;
}

const steps = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];

// duration in its largest unit, rounded down: what is 40 s old is not said to be a minute old.
export function duration(seconds) {
  const s = Math.max(Math.floor(seconds), 0);
  const [unit, size] = steps.find(([, size]) => s >= size) ?? steps[3];
  return `${Math.floor(s / size)} ${unit}`;
}

export function age(time) {
  const at = Date.parse(time);
  return Number.isNaN(at) ? '–' : duration((Date.now() - at) / 1000);
}
