const ranks = data.steps.length;
// What a receive takes: the rank and the step that send it.
for (const step of data.steps.flat()) step.message = step.sent === undefined ? undefined : [step.peer, step.sent];
const rounds = Math.max(-1, ...data.steps.flat().map(step => step.round));
const colour = rank => hue(rank, ranks);

// By rank and chunk: what the chunk holds, from before the call on, in the order of the writes. A
// content is a list of symbols [rank, chunk]: whose contributions were combined.
function run() {
  const writes = data.held.map(chunks => {
    const mine = {};
    for (const chunk of chunks.input) mine["in" + chunk] = [{ symbols: [[chunks.rank, chunk]] }];
    return mine;
  });
  const messages = {};
  const queue = data.steps.flatMap((steps, rank) => steps.map((step, nth) => ({ step, rank, nth })));
  queue.sort((a, b) => a.step.round - b.step.round || a.rank - b.rank || a.nth - b.nth);
  const combine = (left, right) => {
    const known = new Set((left || []).map(String));
    return (left || []).concat((right || []).filter(symbol => !known.has(String(symbol))));
  };
  for (const { step, rank, nth } of queue) {
    const held = name => (writes[rank][name] || []).at(-1)?.symbols;
    if (step.kind === "send") messages[rank + " " + nth] = held(step.from);
    const incoming = step.message ? messages[step.message.join(" ")] : held(step.from);
    const reduces = step.kind === "recv_reduce" || step.kind === "reduce";
    if (!step.into) continue;
    const symbols = reduces ? combine(held(step.into), incoming) : incoming;
    (writes[rank][step.into] ||= []).push({ step, symbols });
  }
  return writes;
}
const writes = run();

// What a chunk holds when the steps are over that `over` says.
const content = (rank, name, over) => (writes[rank][name] || []).findLast(({ step }) => !step || over(step))?.symbols;

const verbs = {
  send: step => `send ${step.from} to rank ${step.peer}`,
  recv: step => `receive ${step.into} from rank ${step.peer}`,
  recv_reduce: step => `combine what rank ${step.peer} sends into ${step.into}`,
  copy: step => `${step.into} becomes ${step.from}`,
  reduce: step => `combine ${step.from} into ${step.into}`,
};
const words = step => verbs[step.kind](step);
const holds = symbols => {
  if (!symbols) return "";
  if (!data.reduces) return symbols.map(([rank, chunk]) => `${rank}:${chunk}`).join(" ");
  const from = symbols.map(symbol => symbol[0]).sort((a, b) => a - b);
  return from.length === ranks && ranks > 2 ? "all" : from.join("+");
};

// The chunks that a rank ever holds, in the order of its buffers.
function chunksOf(rank) {
  const names = new Set();
  for (const chunk of data.held[rank].input) names.add("in" + chunk);
  for (const chunk of data.held[rank].output) names.add("out" + chunk);
  for (const step of data.steps[rank]) for (const name of [step.from, step.into]) if (name) names.add(name);
  const place = name => ["in", "out", "tmp"].indexOf(name.replace(/\d+/, "")) * 1e6 + +name.replace(/\D+/, "");
  return [...names].sort((a, b) => place(a) - place(b));
}

const boxes = [];
let stage;
// The receive that takes each message, by the rank and the step that send it.
const takes = {};
function build() {
  stage = columns(ranks);
  stage.forEach((column, rank) => {
    boxes[rank] = {};
    let buffer = "";
    for (const name of chunksOf(rank)) {
      const title = { in: "input", out: "output", tmp: "scratch" }[name.replace(/\d+/, "")];
      if (title !== buffer) column.append(element("div", buffer = title, { class: "buffer" }));
      column.append(boxes[rank][name] = element("div", "", { class: "chunk", role: "img" }));
    }
    $("which").append(element("option", `rank ${rank}`, { value: rank }));
    for (const step of data.steps[rank]) if (step.message) takes[step.message.join(" ")] = { rank, step };
  });
  $("summary").textContent = data.summary;
  if (data.reduces) {
    $("legend").append("A chunk lists the ranks whose contributions it holds:");
    for (let rank = 0; rank < ranks; rank++) {
      $("legend").append(element("span", "", { class: "key", style: `background: ${colour(rank)}` }), `${rank}`);
    }
  } else $("legend").append("A chunk names its origin, as rank:chunk.");
  if (data.clock) $("legend").append(" By the clocks, a chunk has a bar for each of its windows, and says how many windows are as they will stay.");
}

// Shows what the windows of a chunk hold; by rounds there is one.
function fill(box, name, windows, last) {
  const held = windows.map(holds);
  const key = held.join("|");
  if (box.dataset.key === key) return;
  box.dataset.key = key;
  const ready = windows.filter(symbols => symbols && symbols === last).length;
  const short = held.every(text => text === held[0]) ? held[0] : `${ready}/${windows.length}`;
  const line = element("div", undefined, { class: "what" });
  line.append(element("b", name), short);
  const bars = windows.map(symbols => {
    const from = new Set((symbols || []).map(symbol => symbol[0]));
    const bar = element("div", undefined, { class: "bar", style: windows.length > 1 ? "height: 3px" : "" });
    for (let other = 0; other < ranks; other++) bar.append(element("i", undefined, from.has(other) ? { style: `background: ${colour(other)}` } : {}));
    return bar;
  });
  box.replaceChildren(line, ...bars);
  const said = held.map(text => text ? "holds " + text : "nothing yet");
  box.setAttribute("aria-label", `${name}: ${windows.length > 1 ? said.map((text, window) => `window ${window} ${text}`).join(", ") : said[0]}`);
}

// By rounds: a step is over when its round has been shown.
const byRounds = {
  first: -1,
  last: rounds,
  place: round => round < 0 ? "Before the call" : `Round ${round} of ${rounds}`,
  windows: (rank, name, round) => [content(rank, name, step => step.round <= round)],
  current: (rank, round) => data.steps[rank].filter(step => step.round === round),
  over: (step, round) => step.round < round,
  // What a rank waits for that does nothing in this round and is not done.
  waits: (rank, round) => round < 0 || byRounds.current(rank, round).length ? undefined : data.steps[rank].find(step => step.round > round && step.message)?.peer,
  flying: round => data.steps.flatMap((_, rank) => byRounds.current(rank, round).filter(step => step.kind === "send").map(step => [rank, step])),
  tell(round, flying, waiting) {
    const waits = waiting.length ? `; waiting: rank ${waiting.join(", rank ")}` : "";
    const messages = `${flying} message${flying === 1 ? "" : "s"} leave${flying === 1 ? "s" : ""}`;
    return round < 0 ? "Before the call: each rank holds its input." : `Round ${round}: ${messages}${waits}.`;
  },
  moves: true,
};

// By the simulator's clocks: the moments are those at which a port begins or ends something.
function clocks({ lanes: ports, end, told }) {
  // The slices of a lane follow one another: the time since the one before, the time that it takes. Only
  // a message that arrives names its peer, whose step it is.
  const slices = ports.flatMap((port, lane) => {
    let at = 0;
    return port.slices.map(([since, takes, window, step, peer = data.steps[port.rank][step].peer ?? port.rank]) => [lane, at += since, at += takes, peer, window, step]);
  });
  // The ends of windows are told likewise.
  for (const step of data.steps.flat()) {
    let at = 0;
    step.ends = step.ends?.map(since => at += since);
  }
  const moments = [...new Set([0, end, ...slices.flatMap(slice => [slice[1], slice[2]])])].sort((a, b) => a - b);
  const windows = data.clock.windows;
  const begins = {};
  for (const [lane, start, , , window, nth] of slices) {
    if (ports[lane].part.startsWith("sends")) begins[[ports[lane].rank, nth, window]] = start;
  }
  // Several sends to one rank may be one message, which bears the number of the first of them.
  const sends = data.steps.flatMap((steps, rank) => {
    const lead = {};
    return steps.flatMap((step, nth) => {
      const taken = takes[rank + " " + nth];
      if (step.kind !== "send" || !taken) return [];
      if ([rank, nth, 0] in begins) lead[step.peer] = nth;
      return taken.step.ends.map((end, window) => ({ rank, step, end, start: begins[[rank, lead[step.peer], window]] }));
    });
  });
  const names = { sends: "send to rank", receives: "receive from rank", combines: "combine; rank" };
  const box = ([lane, start, stop, peer, window]) => ({
    lane, start, end: stop,
    title: `${ports[lane].name}: ${names[ports[lane].part.split(" ")[0]]} ${peer}, window ${window}, ${start} to ${stop} ns`,
    attributes: { style: `fill: ${colour(peer)}`, opacity: 1 - .5 * (window % 2) },
  });
  $("clock").hidden = false;
  const mark = lanes($("gantt"), "A row for each port of a rank; a box for each message and combination", ports.map(port => port.name), end, slices.map(box));
  const flying = at => sends.filter(send => send.start <= at && at < send.end);
  const isOver = (step, at) => (step.ends || []).every(time => time <= at);
  const busy = at => slices.filter(([, start, stop]) => start <= at && at < stop);
  return {
    first: 0,
    last: moments.length - 1,
    moments,
    mark,
    pause: Math.max(80, Math.min(1200, 2e4 / moments.length)),
    place: nth => `${seconds(moments[nth] / 1e9)} of ${seconds(end / 1e9)}`,
    windows: (rank, name, nth) => [...Array(windows).keys()].map(window => content(rank, name, step => step.ends[window] <= moments[nth])),
    current(rank, nth) {
      const at = moments[nth];
      const sent = flying(at).filter(send => send.rank === rank).map(send => send.step);
      return data.steps[rank].filter(step => sent.includes(step) || step.ends?.some(time => time <= at) && !isOver(step, at));
    },
    over: (step, nth) => step.ends ? isOver(step, moments[nth]) : sends.filter(send => send.step === step).every(send => send.end <= moments[nth]),
    waits(rank, nth) {
      const at = moments[nth];
      if (busy(at).some(([lane]) => ports[lane].rank === rank)) return undefined;
      const next = data.steps[rank].filter(step => step.message && !isOver(step, at));
      const soonest = step => Math.min(...step.ends.filter(time => time > at));
      return next.sort((a, b) => soonest(a) - soonest(b))[0]?.peer;
    },
    flying: nth => flying(moments[nth]).map(send => [send.rank, send.step]),
    tell(nth, flying, waiting) {
      const waits = waiting.length ? `; rank ${waiting.join(", rank ")} waits` : "";
      return `${told} At ${seconds(moments[nth] / 1e9)}: ${flying} messages are under way and ${busy(moments[nth]).length} ports are busy${waits}.`;
    },
    moves: false,
  };
}

function show(step) {
  const waits = [];
  for (let rank = 0; rank < ranks; rank++) {
    const written = new Set(mode.current(rank, step).map(one => one.into));
    for (const name in boxes[rank]) {
      const box = boxes[rank][name];
      box.className = written.has(name) ? "chunk written" : "chunk";
      fill(box, name, mode.windows(rank, name, step), writes[rank][name]?.at(-1).symbols);
    }
    const peer = mode.waits(rank, step);
    waiting(stage[rank], peer);
    if (peer !== undefined) waits.push(rank);
  }
  const flying = mode.flying(step);
  const lines = flying.map(([rank, one]) => {
    const taken = takes[rank + " " + data.steps[rank].indexOf(one)];
    return taken ? arrow(boxes[rank][one.from], boxes[taken.rank][taken.step.into], colour(rank), mode.moves) : [];
  });
  $("links").replaceChildren(...lines.flat());
  $("told").textContent = mode.tell(step, flying.length, waits);
  mode.mark?.(mode.moments[step]);
  list(step);
  cost(step);
}

function list(step) {
  const rows = data.steps.map((_, rank) => {
    const row = element("tr");
    row.append(element("th", `rank ${rank}`, { scope: "row" }), element("td", mode.current(rank, step).map(words).join("; ") || (step < 0 ? "" : "–")));
    return row;
  });
  $("lines").replaceChildren(...rows);
  const current = new Set(mode.current(+$("which").value, step));
  const steps = data.steps[+$("which").value].map(one => element("li", words(one), { class: current.has(one) ? "now" : mode.over(one, step) ? "done" : "" }));
  $("list").replaceChildren(...steps);
}

// The bytes of the rank that sends the most, in parts of the whole.
const most = round => Math.max(0, ...data.steps.map((_, rank) => byRounds.current(rank, round).filter(step => step.kind === "send").length)) / data.chunks;
const seconds = value => value < 1e-3 ? `${(value * 1e6).toFixed(2)} us` : value < 1 ? `${(value * 1e3).toFixed(2)} ms` : `${value.toFixed(2)} s`;
const size = bytes => ["B", "KiB", "MiB", "GiB"].reduce((text, unit, nth) => bytes >= 2 ** (10 * nth) ? `${bytes / 2 ** (10 * nth)} ${unit}` : text, "0 B");

// What the rounds cost so far, or all of them while the clocks are shown.
function cost(step) {
  const alpha = 10 ** +$("alpha").value;
  const gigabits = 10 ** +$("gigabits").value;
  const bytes = 2 ** +$("bytes").value;
  $("alphaout").textContent = seconds(alpha);
  $("gigabitsout").textContent = `${gigabits.toPrecision(3)} Gbit/s`;
  $("bytesout").textContent = size(bytes);
  let latencies = 0, parts = 0;
  const shown = mode === byRounds ? step : rounds;
  // A message that leaves in a round has arrived in the next one.
  for (let round = 0; round < Math.max(shown, 0); round++) { latencies++; parts += most(round); }
  const beta = 8e-9 / gigabits;
  const total = latencies * alpha + parts * bytes * beta;
  $("cost").textContent = `${latencies} alpha + ${+parts.toFixed(3)} S beta = ${seconds(latencies * alpha)} + ${seconds(parts * bytes * beta)} = ${seconds(total)}`;
}

build();
let mode = byRounds;
const view = { get first() { return mode.first; }, get last() { return mode.last; }, get pause() { return mode.pause; }, place: step => mode.place(step), show };
for (const id of ["alpha", "gigabits", "bytes"]) $(id).oninput = () => cost(now);
$("which").onchange = () => list(now);
if (data.clock) {
  const ticks = clocks(data.clock);
  const choice = element("select", undefined, { id: "mode", "aria-label": "What a step is" });
  choice.append(element("option", "by rounds"), element("option", "by the clocks"));
  choice.onchange = () => {
    play(false);
    mode = choice.selectedIndex ? ticks : byRounds;
    $("lineshead").textContent = choice.selectedIndex ? "The steps under way" : "The steps of this round";
    go(view.first);
  };
  $("controls").append(choice);
}
