// The timeline: state, drawing, and what pointer, wheel and keys do with it.

const timeline = (() => {
  const stage = document.getElementById("stage");
  const source = document.getElementById("timeline-data");
  if (!stage || !source) return null;
  const data = JSON.parse(source.textContent);
  const facts = document.getElementById("facts"), stepBox = document.getElementById("step");
  const SVG = "http://www.w3.org/2000/svg";
  const MOST_RANKS = 8;
  const prepared = new Map();
  const state = { step: data.start, ranks: [], from: 0, to: 1, chosen: null, width: 0 };
  let shown = [], lanes = [], bounds = { from: 0, to: 1 }, waiting = false;

  const element = (name, attributes, parent, text) => {
    const made = document.createElementNS(SVG, name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    if (text !== undefined) made.textContent = text;
    parent?.append(made);
    return made;
  };

  const viewOf = (rank) => {
    const key = `${rank}:${state.step}`;
    if (!prepared.has(key)) {
      const view = data.views.find((one) => one.rank === rank && one.step === state.step);
      prepared.set(key, view ? prepare(view, data.words) : null);
    }
    return prepared.get(key);
  };

  /** Choose what is shown anew; the whole step comes into view. */
  function load() {
    shown = state.ranks.map(viewOf).filter(Boolean);
    bounds = shown.length ? { from: least(shown.map((one) => one.from)), to: most(shown.map((one) => one.to)) } : { from: 0, to: 1 };
    const margin = (bounds.to - bounds.from) * 0.005;
    bounds = { from: bounds.from - margin, to: bounds.to + margin };
    state.chosen = null;
    show(bounds.from, bounds.to);
    document.getElementById("chosen").textContent =
      state.ranks.length === data.ranks.length ? `all ${data.ranks.length}` : state.ranks.map((k) => data.ranks[k].replace("rank ", "")).join(", ") || "none";
  }

  function show(from, to) {
    const whole = bounds.to - bounds.from;
    const length = Math.min(Math.max(to - from, whole / 20000), whole);
    state.from = Math.min(Math.max(from, bounds.from), bounds.to - length);
    state.to = state.from + length;
    redraw();
  }

  function redraw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(); });
  }

  function draw() {
    const width = state.width || stage.clientWidth || 700, left = width < 520 ? 62 : 92;
    const axis = axisOf(state.from, state.to, left, width);
    const height = HEIGHT.axis + shown.reduce((sum, one) => sum + one.height, 0);
    const picture = element("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" });
    element("pattern", { id: "hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      element("defs", {}, picture)).append(element("rect", { width: 5, height: 5, class: "waiting-ground" }), element("rect", { width: 2, height: 5, class: "waiting-line" }));
    drawAxis(picture, axis, width, height);
    lanes = [];
    let y = HEIGHT.axis;
    for (const one of shown) y = drawRank(picture, one, y, axis);
    drawChosen(picture, axis);
    stage.replaceChildren(picture);
    state.axis = axis;
  }

  function drawAxis(picture, axis, width, height) {
    for (const tick of ticksOf(axis, width)) {
      const x = axis.x(tick.time).toFixed(1);
      element("line", { class: "tick", x1: x, x2: x, y1: HEIGHT.axis - 6, y2: height }, picture);
      element("text", { class: "time", x, y: 12, "text-anchor": "middle" }, picture, tick.label);
    }
    element("text", { class: "time", x: 0, y: 12 }, picture, "ms");
  }

  function drawRank(picture, one, y, axis) {
    element("text", { class: "rank", x: 0, y: y + 13 }, picture, data.ranks[one.view.rank]);
    y += HEIGHT.title;
    for (const lane of one.lanes) {
      element("text", { class: "lane", x: 0, y: y + 9 }, picture, lane.name);
      element("path", { class: lane.name, d: pathOf(lane.spans, y, HEIGHT.compute, axis) }, picture);
      lanes.push({ one, lane, top: y, bottom: y + HEIGHT.compute + HEIGHT.gap });
      y += HEIGHT.compute + HEIGHT.gap;
    }
    for (const row of one.rows) {
      element("text", { class: "lane", x: 0, y: y + 11 }, picture, axis.left < 80 ? row.name.replace("collectives", "comm") : row.name);
      element("path", { class: "hidden", d: pathOf(row.spans.hidden, y + 3, HEIGHT.row - 6, axis) }, picture);
      element("path", { class: "waiting", d: pathOf(row.spans.waiting, y + 1, HEIGHT.row - 2, axis) }, picture);
      element("path", { class: "exposed", d: pathOf(row.spans.exposed, y, HEIGHT.row, axis) }, picture);
      lanes.push({ one, row, top: y, bottom: y + HEIGHT.row + HEIGHT.gap });
      y += HEIGHT.row + HEIGHT.gap;
    }
    return y + HEIGHT.between;
  }

  /** A frame around the chosen collective, with a thin line from when it was ready. */
  function drawChosen(picture, axis) {
    const chosen = state.chosen && lanes.find((lane) => lane.row?.items.includes(state.chosen.item));
    if (!chosen) return;
    const { item, one } = state.chosen;
    const left = axis.x(Math.max(item.start, axis.from)), right = axis.x(Math.min(item.end, axis.to));
    const ready = one.view.collectives.ready_ms[item.k];
    if (ready !== null && ready - one.view.shift < item.start) {
      const x = axis.x(Math.max(ready - one.view.shift, axis.from));
      element("path", { class: "ready", d: `M${x} ${chosen.top}v${HEIGHT.row}M${x} ${chosen.top + HEIGHT.row / 2}H${left}` }, picture);
    }
    if (item.end < axis.from || item.start > axis.to) return;
    element("rect", { class: "chosen", x: left - 2, y: chosen.top - 2, width: Math.max(right - left, 1) + 4, height: HEIGHT.row + 4, rx: 3 }, picture);
  }

  // --- facts

  const FACTS = [
    ["took", "duration_ms", "ms"], ["waited for a late rank", "wait_ms", "ms"], ["transfer", "wire_ms", "ms"],
    ["hidden by backward", "hidden_backward_ms", "ms"], ["exposed", "exposed_ms", "ms"],
    ["size", "bytes", "bytes"], ["bus bandwidth", "bus_gb_per_s", "GB/s"],
    ["ready", "ready_ms", "at"], ["launched", "launch_ms", "at"], ["started", "start_ms", "at"], ["number in its group", "seq", ""],
  ];

  function written(value, unit, view) {
    if (unit === "bytes") return value >= 2 ** 20 ? `${(value / 2 ** 20).toFixed(1)} MiB` : value >= 2 ** 10 ? `${(value / 2 ** 10).toFixed(1)} KiB` : `${value} B`;
    if (unit === "") return String(value);
    const number = unit === "at" ? value - view.begin : value;
    const size = Math.abs(number), places = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : 3;
    return `${number.toFixed(places)} ${unit === "at" ? "ms in" : unit}`;
  }

  function tell({ one, item }) {
    const columns = one.view.collectives, word = (name) => (columns[name][item.k] === null ? null : data.words[columns[name][item.k]]);
    const title = document.createElement("p");
    const strong = document.createElement("b");
    strong.textContent = word("label");
    const about = [data.ranks[one.view.rank], `step ${data.steps[one.view.step].number}`, `${word("kind")} of ${word("role")}`, `launched in ${word("phase")}`, word("dtype"), word("group") && `group ${word("group")}`];
    title.append(strong, ` ${about.filter(Boolean).join(", ")} `);
    const name = document.createElement("code");
    name.textContent = word("name");
    title.append(name);
    const list = document.createElement("dl");
    for (const [label, field, unit] of FACTS) {
      const value = columns[field][item.k];
      if (value === null) continue;
      const term = document.createElement("dt"), figure = document.createElement("dd"), quoted = document.createElement("data");
      term.textContent = label;
      quoted.value = String(value);
      quoted.dataset.path = `/collectives/${item.index}/${field}`;
      quoted.textContent = written(value, unit, one.view);
      figure.append(quoted);
      const pair = document.createElement("div");
      pair.append(term, figure);
      list.append(pair);
    }
    facts.replaceChildren(title, list);
    facts.classList.add("told");
  }

  function choose(one, item, { reveal = false } = {}) {
    if (state.chosen?.item === item) return;
    state.chosen = { one, item };
    tell(state.chosen);
    const length = state.to - state.from;
    if (reveal && (item.end < state.from || item.start > state.to)) show((item.start + item.end - length) / 2, (item.start + item.end + length) / 2);
    else redraw();
  }

  function release() {
    state.chosen = null;
    facts.classList.remove("told");
    redraw();
  }

  // --- pointer

  const laneAt = (y) => lanes.find((lane) => y >= lane.top - 1 && y < lane.bottom);

  function nearest(items, time, reach) {
    let found = null, best = reach;
    for (const item of items) {
      const away = time < item.start ? item.start - time : time > item.end ? time - item.end : 0;
      if (away <= best) { best = away; found = item; if (!away) break; }
    }
    return found;
  }

  function point(event) {
    const box = stage.getBoundingClientRect();
    const scale = (state.width || box.width) / box.width;
    const lane = laneAt((event.clientY - box.top) * scale), x = (event.clientX - box.left) * scale;
    if (!lane?.row || !state.axis || x < state.axis.left) return;
    const item = nearest(lane.row.items, state.axis.time(x), 4 * (state.to - state.from) / box.width);
    if (item) choose(lane.one, item);
  }

  let drag = null;
  stage.addEventListener("pointerdown", (event) => {
    drag = { x: event.clientX, from: state.from, to: state.to };
    stage.setPointerCapture(event.pointerId);
    stage.focus({ preventScroll: true });
    point(event);
  });
  stage.addEventListener("pointermove", (event) => {
    if (!drag) { point(event); return; }
    const shift = (drag.x - event.clientX) * (drag.to - drag.from) / (stage.clientWidth - state.axis.left);
    if (Math.abs(event.clientX - drag.x) > 3) show(drag.from + shift, drag.to + shift);
  });
  for (const name of ["pointerup", "pointercancel"]) stage.addEventListener(name, () => { drag = null; });

  stage.addEventListener("wheel", (event) => {
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (!sideways && !event.ctrlKey && document.activeElement !== stage) return;
    event.preventDefault();
    if (sideways || event.shiftKey) move((event.deltaX || event.deltaY) / stage.clientWidth);
    else zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), state.axis.time(event.clientX - stage.getBoundingClientRect().left));
  }, { passive: false });

  // --- zoom and move

  function zoom(factor, around = state.chosen ? (state.chosen.item.start + state.chosen.item.end) / 2 : (state.from + state.to) / 2) {
    const fixed = Math.min(Math.max(around, state.from), state.to);
    show(fixed - (fixed - state.from) * factor, fixed + (state.to - fixed) * factor);
  }

  function move(share) {
    const by = share * (state.to - state.from);
    show(state.from + by, state.to + by);
  }

  function frame({ item }) {
    const around = Math.max(item.end - item.start, (bounds.to - bounds.from) / 2000);
    show(item.start - around, item.end + around);
  }

  const DEEDS = {
    in: () => zoom(0.5), out: () => zoom(2), left: () => move(-0.25), right: () => move(0.25), fit: () => show(bounds.from, bounds.to),
  };
  for (const button of document.querySelectorAll("#timeline [data-do]")) button.addEventListener("click", DEEDS[button.dataset.do]);

  // --- keys

  const rows = () => lanes.filter((lane) => lane.row);

  function step(by) {
    if (!state.chosen) return first();
    const row = rows().find((lane) => lane.row.items.includes(state.chosen.item));
    const next = row?.row.items[row.row.items.indexOf(state.chosen.item) + by];
    if (next) choose(row.one, next, { reveal: true });
  }

  function change(by) {
    if (!state.chosen) return first();
    const all = rows(), at = all.findIndex((lane) => lane.row.items.includes(state.chosen.item)), next = all[at + by];
    if (!next) return;
    const middle = (state.chosen.item.start + state.chosen.item.end) / 2;
    choose(next.one, nearest(next.row.items, middle, Infinity), { reveal: true });
  }

  function first() {
    const row = rows()[0];
    if (row) choose(row.one, row.row.items.find((item) => item.end > state.from) ?? row.row.items[0], { reveal: true });
  }

  function end(last) {
    const row = rows().find((lane) => lane.row.items.includes(state.chosen?.item)) ?? rows()[0];
    if (row) choose(row.one, row.row.items.at(last ? -1 : 0), { reveal: true });
  }

  const KEYS = {
    ArrowRight: () => step(1), ArrowLeft: () => step(-1), ArrowDown: () => change(1), ArrowUp: () => change(-1),
    Home: () => end(false), End: () => end(true), Enter: () => state.chosen && frame(state.chosen), Escape: release,
    "+": DEEDS.in, "=": DEEDS.in, "-": DEEDS.out, 0: DEEDS.fit, ShiftArrowRight: DEEDS.right, ShiftArrowLeft: DEEDS.left,
  };
  stage.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const deed = KEYS[(event.shiftKey && event.key.startsWith("Arrow") ? "Shift" : "") + event.key];
    if (!deed) return;
    event.preventDefault();
    deed();
  });

  // --- what is shown

  stepBox.addEventListener("change", () => { state.step = Number(stepBox.value); load(); });

  const boxes = data.ranks.map((label, rank) => {
    const holder = document.createElement("label"), box = document.createElement("input");
    box.type = "checkbox";
    box.checked = rank < MOST_RANKS;
    box.addEventListener("change", pick);
    holder.append(box, ` ${label}`);
    document.getElementById("boxes").append(holder);
    return box;
  });

  function pick() {
    state.ranks = boxes.flatMap((box, rank) => (box.checked ? [rank] : []));
    load();
  }

  /** Show a step of some ranks, and in it the collective with the most of a measure. */
  function jump({ step: wanted, ranks, measure }) {
    state.step = Number(wanted);
    stepBox.value = wanted;
    const named = ranks ? ranks.split(",").map(Number) : [];
    for (const rank of named) boxes[rank].checked = true;
    pick();
    let best = null;
    for (const one of shown) {
      if (measure !== "wait_ms" && named.length && !named.includes(one.view.rank)) continue;
      for (const item of one.items) {
        const value = one.view.collectives[measure][item.k] ?? 0;
        if (!best || value > best.value) best = { one, item, value };
      }
    }
    document.getElementById("timeline").scrollIntoView();
    stage.focus({ preventScroll: true });
    if (best) { choose(best.one, best.item); frame(best); }
  }
  for (const button of document.querySelectorAll(".jump")) button.addEventListener("click", () => jump(button.dataset));

  document.querySelector("#timeline .tools").hidden = false;
  new ResizeObserver(redraw).observe(stage);
  pick();

  return {
    /** For paper: the whole step, as wide as asked. Undone by 0. */
    fixed(width) {
      state.width = width;
      if (width) { state.from = bounds.from; state.to = bounds.to; state.chosen = null; }
      draw();
    },
    state,
  };
})();
