// What is drawn where: lanes of one step, and paths of the spans that are in view. Times are ms on the step's own axis.

const LANES = ["forward", "backward", "other", "optimizer"];
const HEIGHT = { title: 20, compute: 10, row: 14, gap: 3, axis: 24, between: 8 };

/** A collective as spans: waiting until the last rank arrived, then transfer, exposed where no compute ran. */
function splitCollective(start, duration, wait, exposed) {
  const end = start + duration;
  const moving = Math.min(start + (wait ?? 0), end);
  const bare = [], hidden = [];
  let at = moving;
  for (let k = firstAfter(exposed, moving); k < exposed.length && exposed[k] < end; k += 2) {
    const from = Math.max(exposed[k], moving), to = Math.min(exposed[k + 1], end);
    if (from > at) hidden.push(at, from);
    bare.push(from, to);
    at = to;
  }
  if (end > at) hidden.push(at, end);
  return { waiting: moving > start ? [start, moving] : [], exposed: bare, hidden };
}

/** The place of the first span that ends after a time, in sorted [start, end, start, end, ...]. */
function firstAfter(spans, time) {
  let low = 0, high = spans.length >> 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans[2 * middle + 1] > time) high = middle; else low = middle + 1;
  }
  return 2 * low;
}

/** An SVG path of the spans in view; those that share a pixel are one, so that a path never has more parts than pixels. */
function pathOf(spans, y, height, axis) {
  let path = "", left = -1, right = -1;
  const flush = () => {
    if (right < 0) return;
    path += `M${left.toFixed(1)} ${y}h${Math.max(right - left, 0.8).toFixed(1)}v${height}H${left.toFixed(1)}z`;
  };
  for (let k = firstAfter(spans, axis.from); k < spans.length && spans[k] < axis.to; k += 2) {
    const from = axis.x(Math.max(spans[k], axis.from)), to = axis.x(Math.min(spans[k + 1], axis.to));
    if (right >= 0 && from - right < 0.5) { right = Math.max(right, to); continue; }
    flush();
    left = from;
    right = to;
  }
  flush();
  return path;
}

/** The axis of a stage: which times are in view, and where they are. */
function axisOf(from, to, left, width) {
  const scale = (width - left) / (to - from);
  return { from, to, left, x: (time) => left + (time - from) * scale, time: (x) => from + (x - left) / scale };
}

/** Round times in view, at most one every 70 pixels. */
function ticksOf(axis, width) {
  const least = (axis.to - axis.from) * 70 / Math.max(width - axis.left, 70);
  const magnitude = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map((factor) => factor * magnitude).find((size) => size >= least);
  const places = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const ticks = [];
  for (let k = Math.ceil(axis.from / step - 1e-9); k * step <= axis.to; k++) {
    ticks.push({ time: k * step, label: (k * step + 0).toFixed(places) });
  }
  return ticks;
}

/** One rank's step made ready: spans on the step's axis, and its collectives in rows of their group that never overlap. */
function prepare(view, words) {
  const moved = (spans) => spans.map((time) => time - view.shift);
  const columns = view.collectives, exposed = moved(view.exposed);
  const groups = new Map();
  const items = columns.index.map((index, k) => {
    const start = columns.start_ms[k] - view.shift;
    const spans = splitCollective(start, columns.duration_ms[k], columns.wait_ms[k], exposed);
    const name = columns.group[k] === null ? "" : words[columns.group[k]];
    const rows = groups.get(name) ?? groups.set(name, []).get(name);
    const item = { k, index, start, end: start + columns.duration_ms[k], spans };
    const row = rows.find((row) => row.free <= start) ?? rows[rows.push({ free: 0, items: [] }) - 1];
    row.items.push(item);
    row.free = item.end;
    return item;
  });
  const lanes = LANES.map((name) => ({ name, spans: moved(view[name]) })).filter((lane) => lane.spans.length);
  const rows = [...groups].flatMap(([name, rows]) => rows.map((row, k) => ({
    name: k ? "" : (name ? `group ${name}` : "collectives"), items: row.items, spans: gathered(row.items),
  })));
  const ends = [0, view.wall, ...lanes.flatMap((lane) => [lane.spans[0], lane.spans.at(-1)])];
  for (const item of items) ends.push(item.start, item.end);
  return { view, items, lanes, rows, from: least(ends), to: most(ends), height: heightOf(lanes, rows) };
}

const least = (values) => values.reduce((a, b) => Math.min(a, b));
const most = (values) => values.reduce((a, b) => Math.max(a, b));

function gathered(items) {
  const all = { waiting: [], hidden: [], exposed: [] };
  for (const { spans } of items) for (const kind in all) all[kind].push(...spans[kind]);
  return all;
}

function heightOf(lanes, rows) {
  return HEIGHT.title + lanes.length * (HEIGHT.compute + HEIGHT.gap) + rows.length * (HEIGHT.row + HEIGHT.gap) + HEIGHT.between;
}
