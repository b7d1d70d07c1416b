// The parts of the page, from top to bottom.
const data = JSON.parse(find("data").textContent);
const facts = data.facts, series = data.series;
const most = values => values.reduce((a, b) => Math.max(a, b), 0);
const section = (id, title, lead) => {
  const element = find(id);
  if (title) element.append(make("h2", "", title));
  if (lead) element.append(make("p", "lead", lead));
  return element;
};
const plural = (count, one, many) => `${formatCount(count)} ${count === 1 ? one : many}`;

// ---- Top -------------------------------------------------------------------------------------------
function addTop() {
  document.title = `${facts.run}: pipewright report`;
  find("title").textContent = facts.run;
  const state = find("state"), mood = {finished: "good", failed: "bad", killed: "bad", stopped: "warn"}[facts.state];
  state.textContent = facts.state;
  if (mood) state.classList.add(mood);
  const words = [facts.model];
  if (facts.plan) {
    words.push(facts.plan.schedule, plural(facts.plan.ranks, "rank", "ranks"),
               `${plural(facts.plan.micro_batches, "micro-batch", "micro-batches")} of ${facts.plan.micro_batch_size}`,
               `batch ${formatCount(facts.plan.global_batch)}`);
  }
  words.push(facts.machine.machine || facts.machine.host);
  find("subtitle").textContent = words.filter(word => word).join(" \u00b7 ");
  for (const [id, name] of [["figures", "Figures"], ["advice", "Faster"], ["loss", "Loss"], ["time", "Time"], ["timeline", "Timeline"],
                            ["memory", "Memory"], ["training", "Training"], ["run", "Run"]]) {
    const link = make("a", "", name);
    link.href = "#" + id;
    find("nav").append(link);
  }
  find("notes").hidden = facts.notes.length === 0;
  for (const note of facts.notes) find("notes").append(make("li", "", note));
}

function tile(name, value, under) {
  const element = make("div", "tile");
  const [number, unit] = value.split(" ");
  const shown = make("div", "value", number);
  if (unit) shown.append(" ", make("small", "", value.slice(number.length + 1)));
  element.append(make("div", "name", name), shown);
  const line = make("div", "under");
  line.append(...[].concat(under));
  element.append(line);
  find("figures").append(element);
}
// "plan 40 ms (+3%)": coloured where the measured one is clearly the better or the worse.
function against(measured, predicted, format) {
  if (predicted === null || predicted === undefined) return "no prediction";
  const ratio = predicted > 0 ? measured / predicted : 1;
  const change = make("span", ratio > 1.03 ? "worse" : ratio < 0.97 ? "better" : "", formatChange(ratio));
  return [`plan ${format(predicted)} `, change];
}
function addFigures() {
  if (facts.final_loss !== null) tile("loss", formatFigure(facts.final_loss), `from ${formatFigure(facts.first_loss)}`);
  const lossFirst = Object.entries(facts.validation).sort(([a], [b]) => (b === "loss") - (a === "loss"));
  for (const [name, one] of lossFirst.slice(0, 2)) {
    if (one.last === null) continue;
    tile("validation " + name, formatFigure(one.last), `best ${formatFigure(one.best)} at step ${formatCount(one.best_step)}`);
  }
  tile("speed", `${formatCount(facts.samples_per_second)} samples/s`, "median over the steps");
  tile("step", formatSeconds(facts.step_seconds), against(facts.step_seconds, facts.predicted_step_seconds, formatSeconds));
  const bubble = facts.predicted_bubble_fraction;
  tile("bubble", formatPercent(facts.bubble_fraction), bubble === null ? "idle share of the ranks' time" : `plan ${formatPercent(bubble)}`);
  const peak = most(facts.peak_bytes);
  if (peak > 0) {
    tile("peak memory a rank", formatBytes(peak), facts.memory_bytes > 0 ? `${formatPercent(peak / facts.memory_bytes)} of ${formatBytes(facts.memory_bytes)}`
      : facts.predicted_peak_bytes.length ? against(peak, most(facts.predicted_peak_bytes), formatBytes) : "");
  }
  tile("trained", plural(facts.steps, "step", "steps"), `in ${formatDuration(facts.training_seconds)}` +
    (facts.skipped_steps > 0 ? `, ${formatCount(facts.skipped_steps)} skipped` : ""));
}

// ---- What to change --------------------------------------------------------------------------------
// Of as many samples as the run has in a step, also where the batch would be another.
function comparison(one) {
  const before = facts.advice.measured_step_seconds, after = before / one.speedup;
  const element = make("div", "compare"), longest = Math.max(before, after);
  for (const [words, value, name] of [["now", before, ""], ["then", after, "then"]]) {
    const track = make("div", "track"), bar = make("i", name);
    bar.style.width = 100 * value / longest + "%";
    track.append(bar);
    element.append(make("div", "", `${words}: ${formatSeconds(value)} for ${plural(facts.plan.global_batch, "sample", "samples")}`), track);
  }
  return element;
}
function suggestion(one) {
  const item = make("li", "suggestion"), gain = make("div", "gain" + (one.speedup < 1 ? " slower" : ""), formatChange(one.speedup));
  gain.append(make("small", "", "samples/s"));
  const middle = make("div");
  const figures = [`step ${formatSeconds(one.step_seconds)}`, `bubble ${formatPercent(one.bubble_fraction)}`];
  if (one.peak_bytes) figures.push(`peak ${formatBytes(most(one.peak_bytes))} a rank (now ${formatBytes(most(facts.advice.simulated_peak_bytes))})`);
  middle.append(make("div", "what", one.title), make("div", "details", figures.join(" \u00b7 ")));
  for (const setting of one.settings) middle.append(make("code", "", "--set " + setting));
  if (one.caveat) middle.append(make("div", "caveat", `This ${one.caveat}.`));
  item.append(gain, middle, comparison(one));
  return item;
}
function scheduleTable() {
  const all = facts.advice.schedules, longest = most(all.map(one => one.step_seconds));
  const isNow = one => facts.plan && one.plan.schedule === facts.plan.schedule && one.plan.chunks === facts.plan.chunks;
  const rows = all.map(one => {
    const bar = make("span", "cell-bar"), fill = make("i");
    fill.style.width = 100 * one.step_seconds / longest + "%";
    bar.append(fill);
    const name = one.plan.schedule + (one.plan.chunks > 1 ? `, ${one.plan.chunks} stages a rank` : "") + (isNow(one) ? " (this run)" : "");
    return [name, bar, formatSeconds(one.step_seconds), formatChange(one.speedup), formatPercent(one.bubble_fraction),
            one.peak_bytes ? formatBytes(most(one.peak_bytes)) : "not known", one.fits ? "yes" : "no"];
  });
  return table(["schedule", "", "step", "samples/s", "bubble", "peak a rank", "fits"], rows, {now: all.findIndex(isNow)});
}
function addAdvice() {
  const advice = facts.advice;
  const part = section("advice", "What would make it faster");
  if (advice.unknown) return void part.append(make("p", "lead", `Not known: ${advice.unknown}.`));
  part.append(make("p", "lead", "Each change was simulated with the times that this run measured. " +
    `The simulator makes the run's own step ${formatSeconds(advice.simulated_step_seconds)}, ` +
    `${formatPercent(advice.explained)} of the ${formatSeconds(advice.measured_step_seconds)} measured: take the figures to be about that good.`));
  const list = make("ul", "suggestions");
  for (const one of advice.faster) list.append(suggestion(one));
  part.append(advice.faster.length ? list : make("p", "empty", "Nothing that the simulator knows makes this run faster by 1% or more."));
  if (advice.leaner.length) {
    const leaner = make("ul", "suggestions");
    for (const one of advice.leaner) leaner.append(suggestion(one));
    part.append(make("h3", "", "What would take less memory"), leaner);
  }
  if (advice.schedules.length > 1) part.append(folded(`Every schedule for this run (${advice.schedules.length})`, scheduleTable()));
}

// ---- Curves ----------------------------------------------------------------------------------------
const charts = {};
const marks = () => facts.sessions.slice(1).map(session => [session.first_step, `continued here on ${session.started}`]);
function line(name, column, colour, smooth) {
  const banded = series.steps_a_point > 1;
  return {name, x: series.step, y: column.mean, low: banded ? column.low : null, high: banded ? column.high : null, colour, smooth};
}
function addCurves() {
  const losses = [line("training", series.loss, "train", true)];
  if (data.validation.loss) losses.push({name: "validation", x: data.validation.loss.step, y: data.validation.loss.value, colour: "other", dots: true});
  charts.loss = new LineChart(find("loss"), {title: "Loss", label: "Loss by step", series: losses, format: formatFigure, marks: marks(), height: 280});
  charts.speed = new LineChart(find("speed"), {title: "Throughput", label: "Samples a second by step", zero: true, height: 280, marks: marks(),
    series: [line("samples/s", series.samples_per_second, "third", true)], format: formatCount});
}
function addTraining() {
  const part = section("training", "How the training went");
  const grid = make("div", "small");
  part.append(grid);
  const varies = column => new Set(column.mean.filter(value => value !== null)).size > 1;
  const add = (id, title, chart) => {
    const cell = make("div");
    grid.append(cell);
    charts[id] = new LineChart(cell, {title: make("h3", "", title), label: title, height: 160, marks: marks(), ...chart});
  };
  add("learning_rate", "Learning rate", {series: [line("learning rate", series.learning_rate, "train")], format: formatFigure, zero: true});
  if (varies(series.gradient_norm)) add("gradient_norm", "Gradient norm", {series: [line("norm", series.gradient_norm, "train", true)], format: formatFigure, zero: true});
  add("bubble", "Bubble", {series: [line("bubble", series.bubble, "train", true)], format: formatPercent, zero: true});
  if (varies(series.loss_scale)) add("loss_scale", "Loss scale", {series: [line("scale", series.loss_scale, "train")], format: formatFigure, zero: true});
  for (const [name, values] of Object.entries(data.validation)) {
    if (name === "loss") continue;
    add("validation " + name, `Validation: ${name}`, {series: [{name, x: values.step, y: values.value, colour: "other", dots: true}], format: formatFigure});
  }
}

// ---- Where the time went ---------------------------------------------------------------------------
const readable = colour => {
  const [r, g, b] = [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16) / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#0b0e14" : "#ffffff";
};
function stack(name, pieces, total, end, low) {
  const row = make("div", "stack-row"), bar = make("div", "stack" + (low ? " low" : ""));
  for (const [part, share] of pieces) {
    if (share <= 1e-9) continue;
    const piece = make("i", "", share > 0.06 && !low ? formatPercent(share) : "");
    piece.dataset.part = part.name;
    piece.style.cssText = `flex: ${share / total} 0 0; background: ${part.colour}; color: ${readable(part.colour)}`;
    piece.title = `${part.name} ${formatPercent(share)}`;
    bar.append(piece);
  }
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", name + ": " + pieces.filter(([, share]) => share > 1e-9).map(([part, share]) => `${part.name} ${formatPercent(share)}`).join(", "));
  row.append(make("span", "", name), bar, make("span", "end", end));
  return row;
}
const kMeaning = {
  compute: "forwards and backwards", recompute: "forwards run again to save memory", update: "the optimizer",
  communication: "waiting for links, and sums over replicas", imbalance: "waiting for the rank with the most work: a better split may win it back",
  bubble: "waiting that the schedule makes: another one, or more micro-batches, may win it back",
};
function addTime() {
  const {measured, predicted} = facts.breakdown;
  const part = section("time", "Where the time went", measured ? "Of all ranks' time in the measured step, and as it was planned." : "");
  if (!measured) return void part.append(make("p", "empty", "No step was measured."));
  const step = facts.advice.measured_step_seconds ?? 0;
  part.append(stack("measured", data.parts.map(each => [each, measured[each.name]]), 1, step ? formatSeconds(step) : ""));
  if (predicted) part.append(stack("predicted", data.parts.map(each => [each, predicted[each.name]]), 1,
    facts.predicted_step_seconds ? formatSeconds(facts.predicted_step_seconds) : ""));
  const rows = data.parts.filter(each => measured[each.name] > 1e-9 || (predicted && predicted[each.name] > 1e-9)).map(each => {
    const name = make("span"), dot = make("span", "dot");
    dot.style.background = each.colour;
    name.append(dot, each.name);
    return [name, formatPercent(measured[each.name]), predicted ? formatPercent(predicted[each.name]) : "",
            step ? formatSeconds(measured[each.name] * step) : "", kMeaning[each.name]];
  });
  part.append(table(["", "measured", "predicted", "time a rank", ""], rows, {wide: [4]}));
  part.append(make("h3", "", "By rank"));
  const parts = Object.fromEntries(data.parts.map(each => [each.name, each]));
  const idle = {name: "idle", colour: parts.bubble.colour};
  facts.ranks.forEach((rank, index) => {
    const seconds = [[parts.compute, rank.compute_seconds], [parts.recompute, rank.recompute_seconds], [parts.update, rank.update_seconds],
                     [parts.communication, rank.communication_seconds], [idle, rank.idle_seconds]];
    const total = seconds.reduce((sum, [, value]) => sum + value, 0) || 1;
    part.append(stack(`rank ${index}`, seconds.map(([each, value]) => [each, value / total]), 1, `${formatPercent(1 - rank.idle_seconds / total)} busy`, true));
  });
}

// ---- The step itself -------------------------------------------------------------------------------
function addTimeline() {
  const part = section("timeline", "One step, rank by rank");
  if (!data.timeline) return void part.append(make("p", "empty", "No step was measured."));
  part.append(make("p", "lead", "Measured above, predicted below, on one axis. Ctrl and wheel zoom, dragging moves; from the keyboard: Tab to a timeline, " +
    "then + and \u2212 zoom, arrows move, 0 shows the whole step."));
  const element = make("iframe");
  element.id = "frame";
  element.title = "Timeline of one step";
  element.addEventListener("load", () => settleFrame(element));
  element.srcdoc = data.timeline;
  part.append(element);
}
// The timeline is a page of its own. Here it has no title and no button, is as high as its content, and leaves the wheel to
// the reader who scrolls.
function settleFrame(element) {
  const page = element.contentDocument;
  const style = page.createElement("style");
  style.textContent = "h1, #theme, .hint { display: none } #stack { padding: 12px 0 0 } body { background: var(--card) } section:last-of-type { margin-bottom: 0 } " +
                      "#top { padding: 0; background: var(--card); display: flex; flex-wrap: wrap; align-items: center } #axis { order: 3 } " +
                      "#legend { flex: 1; margin: 4px 0 } .bar:first-child { order: 2 }";
  page.head.append(style);
  element.contentWindow.addEventListener("wheel", event => { if (!event.ctrlKey && !event.shiftKey) event.stopImmediatePropagation(); }, {capture: true, passive: true});
  const fit = () => { element.style.height = page.getElementById("stack").getBoundingClientRect().bottom - page.body.getBoundingClientRect().top + 2 + "px"; };
  new ResizeObserver(fit).observe(page.body);
  fit();
  followTheme();
}

// ---- Memory ----------------------------------------------------------------------------------------
function memoryRow(name, bytes, plan, budget, scale) {
  const row = make("div", "stack-row"), bar = make("div", "memory"), fill = make("i");
  fill.style.width = 100 * bytes / scale + "%";
  bar.append(fill);
  const words = [`${formatBytes(bytes)} measured`];
  for (const [tag, value, word] of [["u", plan, "planned"], ["s", budget, "budget"]]) {
    if (!(value > 0)) continue;
    const mark = make(tag);
    mark.style.left = 100 * value / scale + "%";
    bar.append(mark);
    words.push(`${formatBytes(value)} ${word}`);
  }
  bar.title = words.join(", ");
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", `${name}: ${words.join(", ")}`);
  row.append(make("span", "", name), bar, make("span", "end", formatBytes(bytes)));
  return row;
}
function addMemory() {
  const part = section("memory", "Memory");
  const scale = 1.02 * Math.max(most(facts.peak_bytes), most(facts.predicted_peak_bytes), facts.memory_bytes);
  if (facts.peak_bytes.length === 0) part.append(make("p", "empty", "Peaks were not logged."));
  facts.peak_bytes.forEach((bytes, rank) => part.append(memoryRow(`rank ${rank}`, bytes, facts.predicted_peak_bytes[rank], facts.memory_bytes, scale)));
  if (facts.peak_bytes.length > 0) {
    const legend = make("div", "legend");
    const entries = [["i", "measured peak"]];
    if (facts.predicted_peak_bytes.length > 0) entries.push(["u", "planned peak"]);
    if (facts.memory_bytes > 0) entries.push(["s", `budget, ${formatBytes(facts.memory_bytes)}`]);
    for (const [tag, words] of entries) {
      const entry = make("span");
      entry.append(make(tag), words);
      legend.append(entry);
    }
    part.append(legend);
  }
  if (facts.stages.length === 0) return;
  const rows = facts.stages.map((stage, index) => [String(index), String(stage.rank), String(stage.num_layers), formatSeconds(stage.forward_seconds),
    formatSeconds(stage.backward_seconds), stage.recompute_seconds > 0 ? formatSeconds(stage.recompute_seconds) : "\u2013",
    facts.stage_peak_bytes[index] > 0 ? formatBytes(facts.stage_peak_bytes[index]) : "\u2013", stage.layers]);
  part.append(make("h3", "", "By stage"), table(["stage", "rank", "layers", "forward", "backward", "recompute", "peak", "which"], rows, {wide: [7]}));
}

// ---- The run ---------------------------------------------------------------------------------------
function factList(pairs) {
  const list = make("dl", "facts");
  for (const [name, value] of pairs) {
    if (value === "" || value === 0 || value === undefined) continue;
    list.append(make("dt", "", name), make("dd", "", String(value)));
  }
  return list;
}
function addRun() {
  const part = section("run", "The run"), columns = make("div", "columns");
  const {machine} = facts;
  columns.append(factList([["folder", facts.run_dir], ["model", facts.model], ["host", machine.host], ["machine", machine.machine],
    ["cores", machine.cores], ["threads a rank", machine.threads_per_rank], ...Object.entries(facts.versions)]), factList(Object.entries(facts.strategy)));
  part.append(columns, make("h3", "", "Sessions"));
  part.append(table(["started", "ended", "from step", "to step", "outcome", ""], facts.sessions.map(session =>
    [session.started, session.ended ?? "\u2013", formatCount(session.first_step), session.last_step === null ? "\u2013" : formatCount(session.last_step),
     session.outcome, session.message]), {wide: [5], left: true}));
  if (facts.checkpoints.length) part.append(folded(`Checkpoints (${facts.checkpoints.length})`,
    table(["step", ""], facts.checkpoints.map(saved => [formatCount(saved.step), saved.path]), {wide: [1]})));
  if (data.config) part.append(folded("Configuration", make("pre", "", data.config)));
}

// ---- Light and dark --------------------------------------------------------------------------------
const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
function followTheme() {
  const page = find("frame") && find("frame").contentDocument, button = page && page.getElementById("theme");
  if (button && page.documentElement.dataset.theme !== document.documentElement.dataset.theme) button.click();
}
function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  find("theme").textContent = theme === "dark" ? "Light" : "Dark";
  followTheme();
}
prefersDark.addEventListener("change", () => setTheme(prefersDark.matches ? "dark" : "light"));
find("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));

setTheme(prefersDark.matches ? "dark" : "light");
for (const add of [addTop, addFigures, addAdvice, addCurves, addTime, addTimeline, addMemory, addTraining, addRun]) add();
