let plan;
let stage;
let mark;
const FORWARD = 0;
const names = ["forward", "backward"];
// Blue and green, darker for each further stage of the rank.
const shade = ({ pass, chunk }) => `hsl(${pass === FORWARD ? 213 : 143} ${pass === FORWARD ? 50 : 40}% calc(var(--tone) - ${8 * chunk}%))`;
const letter = pass => pass.pass === FORWARD ? "F" : "B";
const through = pass => plan.chunks > 1 ? ` through its stage ${pass.chunk}` : "";
// Times are whole parts of the unit, a forward pass through all stages of a rank.
const number = time => +(time / plan.chunks).toFixed(2);

// The passes of a rank that run at a time, have ended by then, and come later.
const running = (rank, at) => plan.passes[rank].find(pass => pass.start <= at && at < pass.end);
const next = (rank, at) => plan.passes[rank].find(pass => pass.start > at);

// The micro-batches, each with its stage, whose activations the rank keeps: forward has begun, backward
// has not ended.
function held(rank, at) {
  const begun = plan.passes[rank].filter(pass => pass.pass === FORWARD && pass.start <= at);
  const ended = new Set(plan.passes[rank].filter(pass => pass.pass !== FORWARD && pass.end <= at).map(pass => pass.micro + " " + pass.chunk));
  return begun.filter(pass => !ended.has(pass.micro + " " + pass.chunk));
}

// Between its passes a rank waits: the bubble.
function bubbles(rank) {
  const edges = [0, ...plan.passes[rank].flatMap(pass => [pass.start, pass.end]), plan.length];
  return edges.flatMap((start, nth) => nth % 2 === 0 && edges[nth + 1] > start ? [[start, edges[nth + 1]]] : []);
}

// The time in which a rank has waited until then.
const idle = (rank, at) => bubbles(rank).reduce((sum, [start, end]) => sum + Math.max(0, Math.min(at, end) - start), 0);

function choose(nth) {
  const spans = data.plans[nth];
  const pass = ([rank, pass, micro, chunk, start, end, from, ready]) => ({ rank, pass, micro, chunk, start, end, from, ready });
  const passes = [...Array(spans.ranks).keys()].map(rank => spans.passes.map(pass).filter(one => one.rank === rank));
  const moments = [...new Set([0, ...passes.flat().flatMap(one => [one.start, one.end])])].sort((a, b) => a - b);
  plan = { ...spans, passes, moments, length: moments.at(-1) };
  stage = columns(plan.ranks);
  stage.forEach(column => column.append(
    element("div", "", { class: "now" }), element("div", "keeps the activations of", { class: "name" }), element("div", "", { class: "held" })));
  $("summary").textContent = plan.told;
  picture();
}

function picture() {
  const rows = plan.passes.flatMap((_, rank) => [...Array(plan.chunks).keys()].map(chunk => chunk ? `stage ${chunk}` : `rank ${rank}`));
  const box = one => ({
    lane: one.rank * plan.chunks + one.chunk, start: one.start, end: one.end, text: `${one.micro}`,
    title: `rank ${one.rank}: ${names[one.pass]} pass of micro-batch ${one.micro}${through(one)}, time ${number(one.start)} to ${number(one.end)}`,
    attributes: { style: `fill: ${shade(one)}` },
  });
  // A rank with several stages waits with all of them, which its first row shows.
  const bubble = rank => bubbles(rank).map(([start, end]) => ({
    lane: rank * plan.chunks, start, end, title: `rank ${rank} waits, time ${number(start)} to ${number(end)}`, attributes: { class: "bubble", style: "fill: url(#hatch)" },
  }));
  const label = "A row for each stage of a rank; a box for each pass, hatched where the rank waits";
  mark = lanes($("gantt"), label, rows, plan.length, [...plan.passes.flat().map(box), ...plan.passes.flatMap((_, rank) => bubble(rank))]);
  const hatch = shape("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
  hatch.append(shape("rect", { width: 2, height: 6, style: "fill: var(--mark)" }));
  const defs = shape("defs");
  defs.append(hatch);
  $("gantt").firstChild.prepend(defs);
}

const chip = pass => element("span", `${letter(pass)}${pass.micro}`, { class: "pass", style: `background: ${shade(pass)}` });

function show(step) {
  const at = plan.moments[step];
  const [busy, waits] = [[], []];
  stage.forEach((column, rank) => {
    const pass = running(rank, at);
    const later = next(rank, at);
    const peer = pass || !later ? undefined : later.from ?? rank;
    waiting(column, peer);
    if (peer !== undefined) waits.push(rank);
    if (pass) busy.push(`rank ${rank} ${names[pass.pass]} ${pass.micro}`);
    const what = pass ? `${names[pass.pass]} pass of micro-batch ${pass.micro}${through(pass)}` : later ? "" : "done";
    column.querySelector(".now").textContent = what;
    column.querySelector(".held").replaceChildren(...held(rank, at).map(chip));
    column.setAttribute("aria-label", `rank ${rank}: ${what || "waits"}; keeps ${held(rank, at).length} micro-batches`);
  });
  // What a pass has ended now goes to the rank whose pass needs it.
  const ended = plan.passes.flat().filter(pass => pass.from !== undefined && pass.from !== pass.rank && pass.ready === at);
  $("links").replaceChildren(...ended.flatMap(pass => arrow(stage[pass.from].querySelector(".now"), stage[pass.rank].querySelector(".now"), shade(pass), true)));
  const sum = plan.passes.reduce((sum, _, rank) => sum + idle(rank, at), 0);
  const share = at ? ` Ranks have waited ${(100 * sum / at / plan.ranks).toFixed(1)} % of the time so far.` : "";
  const silent = waits.length ? ` Waiting: rank ${waits.join(", rank ")}.` : "";
  $("told").textContent = `Time ${number(at)}: ${busy.join("; ") || "all passes are done"}.${silent}${share}`;
  mark(at);
}

function mesh({ ranks, axes }) {
  $("mesh").hidden = false;
  const places = ranks.map((place, rank) => {
    const box = element("span", `rank ${rank}`, { class: "place", role: "img", tabindex: "0" });
    box.append(element("small", place));
    return box;
  });
  $("places").append(...places);
  const select = axis => {
    axis.groups.forEach((group, nth) => group.forEach(rank => {
      places[rank].style.borderColor = hue(nth, axis.groups.length);
      places[rank].setAttribute("aria-label", `rank ${rank}, ${ranks[rank]}: talks along ${axis.name} with ranks ${group.filter(other => other !== rank).join(", ")}`);
      places[rank].onmouseenter = places[rank].onfocus = () => places.forEach((place, other) => place.classList.toggle("with", group.includes(other)));
    }));
    places.forEach(place => place.classList.remove("with"));
    const groups = axis.groups.map(group => `[${group.join(" ")}]`).join(" ");
    $("axis").textContent = `${axis.name} divides ${axis.divides}. The ranks of a group exchange ${axis.exchange}, ${axis.when}: ${groups}`;
  };
  axes.forEach((axis, nth) => {
    const label = element("label");
    const radio = element("input", undefined, { type: "radio", name: "axis", value: axis.name });
    radio.onchange = () => select(axis);
    label.append(radio, ` ${axis.name}`);
    $("axes").append(label);
    if (nth === 0) { radio.checked = true; select(axis); }
  });
}

const view = { first: 0, get last() { return plan.moments.length - 1; }, pause: 700, place: step => `Time ${number(plan.moments[step])} of ${number(plan.length)}`, show };
if (data.plans.length > 1) {
  const choice = element("select", undefined, { id: "plan", "aria-label": "Pipeline schedule" });
  choice.append(...data.plans.map(plan => element("option", plan.name)));
  choice.onchange = () => { play(false); choose(choice.selectedIndex); go(0); };
  $("controls").append(choice);
}
if (data.mesh) mesh(data.mesh);
choose(0);
