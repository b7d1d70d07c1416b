"use strict";
// What the parts of the page share: elements, numbers for readers, line charts.
const find = id => document.getElementById(id);
const make = (tag, name, text) => {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  return element;
};
const svg = (tag, attributes, text) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
};

// ---- Numbers for readers -------------------------------------------------------------------------
const significant = (value, digits) => String(Number(value.toPrecision(digits)));
const withUnit = (value, units, digits) => {
  const [factor, name] = units.find(([least]) => Math.abs(value) >= least) || units[units.length - 1];
  return significant(value / factor, digits) + " " + name;
};
const formatSeconds = value => value === 0 ? "0 s" : withUnit(value, [[1, "s"], [1e-3, "ms"], [1e-6, "\u00b5s"]], 3);
const formatBytes = value => withUnit(value, [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]], 3);
const formatPercent = share => (100 * share).toFixed(1) + "%";
const formatChange = ratio => (ratio >= 1 ? "+" : "\u2212") + Math.abs(100 * (ratio - 1)).toFixed(1) + "%";
const formatCount = value => value.toLocaleString("en-US", {maximumFractionDigits: value < 10 ? 2 : value < 100 ? 1 : 0});
const formatFigure = value => value === 0 ? "0" : Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3 ? value.toExponential(2) : significant(value, 4);
function formatDuration(seconds) {
  const whole = Math.round(seconds), two = value => String(value).padStart(2, "0");
  const days = Math.floor(whole / 86400), hours = Math.floor(whole / 3600) % 24, minutes = Math.floor(whole / 60) % 60;
  if (days > 0) return `${days} d ${hours}:${two(minutes)}`;
  return hours > 0 ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

// ---- Tables ----------------------------------------------------------------------------------------
// A cell is a text, or an element.
function table(heads, rows, {now = -1, wide = [], left = false} = {}) {
  const element = make("table", left ? "left" : ""), head = make("tr");
  heads.forEach((text, column) => {
    const cell = make("th", wide.includes(column) ? "wide" : "", text);
    cell.scope = "col";
    head.append(cell);
  });
  element.append(make("thead"), make("tbody"));
  element.firstChild.append(head);
  rows.forEach((row, index) => {
    const line = make("tr", index === now ? "now" : "");
    row.forEach((content, column) => {
      const cell = make("td", wide.includes(column) ? "wide" : "");
      cell.append(content instanceof Node ? content : String(content));
      line.append(cell);
    });
    element.lastChild.append(line);
  });
  const scroll = make("div", "scroll");
  scroll.append(element);
  return scroll;
}
function folded(title, content) {
  const details = make("details");
  details.append(make("summary", "", title), content);
  return details;
}

// ---- Line charts -----------------------------------------------------------------------------------
const kLeft = 58, kRight = 12, kTop = 8, kBottom = 24;

function niceTicks(low, high, most) {
  const raw = (high - low) / most, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(factor => factor * power).find(each => each >= raw * (1 - 1e-9));
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) ticks.push(Number((i * step).toPrecision(12)));
  return ticks;
}

// A mean that follows slowly, so that the course of a noisy line shows.
function smoothed(values) {
  const known = values.filter(value => value !== null).length, keep = 1 - 1 / Math.max(1, Math.min(30, known / 15));
  let mean = null, weight = 0;
  return values.map(value => {
    if (value === null) return null;
    mean = (mean === null ? 0 : keep * mean) + (1 - keep) * value;
    weight = keep * weight + (1 - keep);
    return mean / weight;
  });
}

// `series`: {name, x, y, colour, low, high, smooth, dots}. `marks`: [x, words], upright dashed lines.
class LineChart {
  constructor(parent, {title, series, format, zero = false, height = 240, marks = [], label}) {
    Object.assign(this, {series: series.filter(each => each.y.some(value => value !== null)), format, zero, height, marks, title, label});
    this.box = make("div", "chart");
    this.addHead(parent);
    parent.append(this.box);
    if (this.series.length === 0) return void this.box.append(make("div", "empty", "Nothing was logged."));
    for (const each of this.series) if (each.smooth) each.smoothed = smoothed(each.y);
    this.xs = [...new Set(this.series.flatMap(each => each.x))].sort((a, b) => a - b);
    this.readout = make("div", "readout");
    this.readout.hidden = true;
    this.box.append(this.readout);
    this.live = make("div", "skip");
    this.live.setAttribute("aria-live", "polite");
    this.box.append(this.live);
    parent.append(folded("As a table", this.asTable()));
    new ResizeObserver(() => this.draw()).observe(this.box);
    this.draw();
  }

  addHead(parent) {
    const head = make("div", "chart-head"), keys = make("div", "keys");
    head.append(this.title instanceof Node ? this.title : make("h2", "", this.title), keys);
    for (const each of this.series) {
      const key = make("span", each.dots ? "dots" : "", each.name);
      key.style.setProperty("--key", `var(--${each.colour})`);
      keys.append(key);
    }
    parent.append(head);
  }

  asTable() {
    const rows = this.xs.filter((_, i) => this.xs.length <= 200 || i % Math.ceil(this.xs.length / 200) === 0 || i === this.xs.length - 1)
      .map(x => [formatCount(x), ...this.series.map(each => {
        const value = each.y[each.x.indexOf(x)];
        return value === undefined || value === null ? "" : this.format(value);
      })]);
    return table(["step", ...this.series.map(each => each.name)], rows);
  }

  // The least and the most drawn. A few wild values, as of a first step, do not flatten the rest.
  range() {
    const values = this.series.flatMap(each => [...(each.smoothed || each.y), ...(each.dots ? [] : each.y)]).filter(value => value !== null)
      .sort((a, b) => a - b);
    let low = values[Math.floor(values.length * 0.005)], high = values[Math.ceil(values.length * 0.995) - 1];
    if (this.zero) low = Math.min(0, low);
    if (!(high > low)) { const slack = Math.abs(high) * 0.1 || 1; low -= this.zero && low === 0 ? 0 : slack; high += slack; }
    const margin = 0.06 * (high - low);
    return [this.zero && low === 0 ? 0 : low - margin, high + margin];
  }

  draw() {
    const width = this.box.clientWidth;
    if (width < kLeft + kRight + 20) return;
    const [low, high] = this.range(), first = this.xs[0], last = this.xs[this.xs.length - 1];
    const inner = width - kLeft - kRight, tall = this.height - kTop - kBottom;
    this.toX = x => kLeft + (last > first ? (x - first) / (last - first) : 0.5) * inner;
    this.toY = y => kTop + (1 - (Math.max(low, Math.min(high, y)) - low) / (high - low)) * tall;
    const root = svg("svg", {viewBox: `0 0 ${width} ${this.height}`, height: this.height, tabindex: 0, role: "img", "aria-label": this.words()});
    for (const tick of niceTicks(low, high, 5)) {
      const y = this.toY(tick);
      root.append(svg("line", {class: "rule", x1: kLeft, x2: width - kRight, y1: y, y2: y}));
      root.append(svg("text", {class: "y-tick", x: kLeft - 8, y: y + 4, "text-anchor": "end", "data-value": tick}, this.format(tick)));
    }
    const ticks = last > first ? niceTicks(first, last, Math.max(2, Math.floor(inner / 90))) : [first];
    for (const tick of ticks.filter(Number.isInteger)) {
      root.append(svg("text", {class: "x-tick", x: this.toX(tick), y: this.height - 6, "text-anchor": "middle", "data-value": tick}, formatCount(tick)));
    }
    for (const [x, words] of this.marks) {
      if (x < first || x > last) continue;
      const line = svg("line", {class: "mark", x1: this.toX(x), x2: this.toX(x), y1: kTop, y2: this.height - kBottom});
      line.append(svg("title", {}, words));
      root.append(line);
    }
    for (const each of this.series) this.drawSeries(root, each);
    this.cursor = svg("line", {class: "cursor", y1: kTop, y2: this.height - kBottom, visibility: "hidden"});
    root.append(this.cursor);
    if (this.root) this.root.replaceWith(root); else this.box.prepend(root);
    this.root = root;
    this.listen(root);
  }

  path(x, y) {
    let out = "", pen = "M";
    y.forEach((value, i) => {
      if (value === null) return void (pen = "M");
      out += `${pen}${this.toX(x[i]).toFixed(2)} ${this.toY(value).toFixed(2)}`;
      pen = "L";
    });
    return out;
  }

  drawSeries(root, each) {
    const stroke = `stroke: var(--${each.colour})`, fill = `fill: var(--${each.colour})`;
    if (each.low) {
      const known = each.x.map((x, i) => [x, each.low[i], each.high[i]]).filter(point => point[1] !== null);
      const up = known.map(([x, , most]) => `${this.toX(x).toFixed(1)} ${this.toY(most).toFixed(1)}`);
      const down = known.map(([x, least]) => `${this.toX(x).toFixed(1)} ${this.toY(least).toFixed(1)}`).reverse();
      root.append(svg("path", {class: "band", d: `M${[...up, ...down].join("L")}Z`, style: "fill: var(--band)"}));
    }
    if (each.smoothed) root.append(svg("path", {class: "thin raw", "data-series": each.name, d: this.path(each.x, each.y), style: stroke}));
    root.append(svg("path", {class: "line", "data-series": each.name, d: this.path(each.x, each.smoothed || each.y), style: stroke}));
    if (!each.dots) return;
    each.y.forEach((value, i) => {
      if (value === null) return;
      root.append(svg("circle", {class: "dot-mark", "data-series": each.name, cx: this.toX(each.x[i]), cy: this.toY(value), r: 3.5, style: fill}));
    });
  }

  words() {
    const parts = this.series.map(each => {
      const known = each.y.filter(value => value !== null);
      return `${each.name} from ${this.format(known[0])} to ${this.format(known[known.length - 1])}`;
    });
    return `${this.label}: ${parts.join("; ")}. Arrow keys read single steps.`;
  }

  listen(root) {
    root.addEventListener("pointermove", event => {
      const place = root.getBoundingClientRect(), at = event.clientX - place.left;
      let best = 0;
      this.xs.forEach((x, i) => { if (Math.abs(this.toX(x) - at) < Math.abs(this.toX(this.xs[best]) - at)) best = i; });
      this.show(best, false);
    });
    root.addEventListener("pointerleave", () => this.hide());
    root.addEventListener("blur", () => this.hide());
    root.addEventListener("keydown", event => {
      const many = Math.max(1, Math.round(this.xs.length / 20)), end = this.xs.length - 1, now = this.at ?? -1;
      const next = {ArrowRight: now + 1, ArrowLeft: this.at === undefined ? end : now - 1, PageDown: now + many, PageUp: now - many, Home: 0, End: end}[event.key];
      if (event.key === "Escape") return void this.hide();
      if (next === undefined) return;
      event.preventDefault();
      this.show(Math.max(0, Math.min(end, next)), true);
    });
  }

  show(index, aloud) {
    const x = this.xs[index], place = this.toX(x);
    this.at = index;
    const lines = this.series.map(each => [each.name, each.y[each.x.indexOf(x)]]).filter(([, value]) => value !== undefined && value !== null);
    this.readout.replaceChildren(make("b", "", "step " + formatCount(x)), ...lines.map(([name, value]) => make("div", "", `${name} ${this.format(value)}`)));
    this.readout.hidden = false;
    const wide = this.readout.offsetWidth;
    this.readout.style.left = (place + wide + 20 > this.box.clientWidth ? place - wide - 12 : place + 12) + "px";
    for (const end of ["x1", "x2"]) this.cursor.setAttribute(end, place);
    this.cursor.setAttribute("visibility", "visible");
    if (aloud) this.live.textContent = this.readout.textContent;
  }

  hide() {
    this.at = undefined;
    this.readout.hidden = true;
    this.cursor.setAttribute("visibility", "hidden");
  }
}
