// Draws the results of a run, which `data` has as `maypole perf --json` writes them.
const { rows, header, definitions, changes, files } = JSON.parse(document.getElementById("data").textContent);
const COLOURS = 10;
// A choice is good if it takes at most this many times as long as the fastest algorithm.
const GOOD = 1.1;
// Through fewer sizes any line fits.
const FEWEST_SIZES = 3;

const escaped = value => String(value).replace(/[&<>"']/g, sign => `&#${sign.charCodeAt(0)};`);
// Three significant digits or more.
const digits = value => value.toFixed([1, 10, 100].filter(bound => value < bound).length);
const distinct = all => [...new Set(all)];
const dashed = name => name.replaceAll("_", "-");
const listed = (all, one) => all.map(one).join("");
const sizeName = bytes => {
  let unit = 0;
  for (; bytes > 0 && bytes % 1024 === 0 && unit < 4; unit += 1) bytes /= 1024;
  return bytes + ["", "K", "M", "G", "T"][unit];
};
const median = values => {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
};
// A power of ten of microseconds, in a unit without decimals.
const duration = us => us < 0.9 ? `${Math.round(us * 1e3)} ns` : us < 900 ? `${Math.round(us)} µs`
  : us < 900e3 ? `${Math.round(us / 1e3)} ms` : `${Math.round(us / 1e6)} s`;
const grouped = (all, key) => [...Map.groupBy(all, key).values()];
const placeName = row => row.in_place ? "in place" : "out of place";

// The points: the rows of one call, out of place and in place. The first has the shown figure.
const POINT = ["collective", "transport", "requested", "count", "type", "op", "root", "registered"];
const calls = grouped(rows.filter(row => "collective" in row), row => JSON.stringify(POINT.map(key => row[key])))
  .map(of => ({ ...of[0], us: of[0].time_us.p50, places: of }));
const messages = rows.filter(row => "test" in row && "time_us" in row).map(row => ({ ...row, us: row.time_us.p50 }));
const matrices = rows.filter(row => "matrix_us" in row);

const table = (name, over, head, lines) => !lines ? "" :
  `<div class="wide"><table class="${name}" data-over="${over}"><tr>${listed(head, it => `<th>${it}</th>`)}</tr>` +
  `${lines}</table></div>`;
const details = (title, html, note) => html &&
  `<details><summary>${title}</summary>${html}<p class="small">${note}</p></details>`;
const cells = values => listed(values, value => `<td>${value}</td>`);
const section = (name, title, html) => [name, `<section id="${name}"><h2>${title}</h2>${html}</section>`];

// How good the tuner's choices and predictions were. Each point counts once, however it was requested.
function judged() {
  const isBeside = (a, b) => a.transport === b.transport && a.collective === b.collective && a.count === b.count;
  const predicted = calls.filter(call => call.predicted_us !== null);
  const once = predicted.filter((call, nth) => !calls.slice(0, calls.indexOf(call))
    .some(other => isBeside(other, call) && other.algorithm === call.algorithm));
  const sentences = [];
  const ratios = once.filter(call => call.tuners_choice === call.algorithm).flatMap(call => {
    const others = calls.filter(other => isBeside(other, call) && other.algorithm !== call.algorithm);
    return others.length ? [call.us / Math.min(call.us, ...others.map(other => other.us))] : [];
  });
  if (ratios.length) {
    sentences.push(`At <b>${ratios.filter(ratio => ratio <= GOOD).length} of ${ratios.length}</b> points the tuner's ` +
      `choice was within 10 % of the fastest algorithm; at worst it took ${digits(Math.max(...ratios))} times as long.`);
  }
  if (once.length) {
    const errors = once.map(call => Math.max(call.predicted_us / call.us, call.us / call.predicted_us));
    sentences.push(`The median prediction was off by a factor of <b>${median(errors).toFixed(2)}</b>.`);
  }
  return `<p>${sentences.join(" ")}</p>`;
}

// The machine and the ranks.
function facts() {
  const memory = header.memory_bytes === null ? "unknown" : `${(header.memory_bytes / 2 ** 30).toFixed(1)}G`;
  const hosts = distinct(header.ranks.map(rank => rank.host)).length;
  const encrypted = rows.some(row => row.encrypted);
  const told = {
    measured: header.date,
    host: `${header.host}: ${header.cores} cores to use, ${header.processor}, ${header.kernel}, memory ${memory}`,
    "clock governor": header.governor ?? "not told by the kernel",
    load: `${header.load ?? "unknown"} at the beginning (processes that want to run, mean of one minute)`,
    ranks: `${header.ranks.length} on ${hosts} ${hosts === 1 ? "host" : "hosts"}; ` +
      (header.ranks_share_cores ? "more ranks than cores: ranks take turns" : "a core for each rank"),
    command: header.command,
    variables: header.variables,
    costs: header.costs,
    encryption: encrypted ? "links between hosts" : "none",
    maypole: `${header.version}${header.commit ? ` (${header.commit})` : ""}, ${header.build}`,
  };
  const lines = listed(Object.entries(told), ([name, value]) => `<dt>${name}</dt><dd>${escaped(value)}</dd>`);
  return `<section><dl class="facts">${lines}</dl>${judged()}</section>`;
}

// The line alpha + bytes * beta that fits times best, relative to them. Neither part is less than zero.
function fitted(times) {
  if (times.size < FEWEST_SIZES) return null;
  const points = [...times];
  const sum = value => points.reduce((all, [x, y]) => all + value(x, y) / (y * y), 0);
  const [w, wx, wy, wxx, wxy] = [() => 1, x => x, (x, y) => y, x => x * x, (x, y) => x * y].map(sum);
  let beta = Math.max(0, (w * wxy - wx * wy) / (w * wxx - wx * wx));
  let alpha = (wy - beta * wx) / w;
  if (alpha < 0) [alpha, beta] = [0, wxy / wxx];
  const off = Math.max(...points.map(([x, y]) => Math.abs((alpha + beta * x) / y - 1)));
  return { alpha, beta, off };
}
const FIT = ["alpha (µs)", "1 / beta (GB/s)", "off by up to"];
const fitCells = fit => cells(fit === null ? ["", "", ""] :
  [digits(fit.alpha), fit.beta > 0 ? digits(1e-3 / fit.beta) : "not to be seen", `${(fit.off * 100).toFixed(0)} %`]);

// Microseconds by size: the least of all algorithms, or the median of all pairs of ranks.
const timesOf = (of, middle) => new Map(grouped(of, row => row.bytes).map(at => [at[0].bytes, middle(at.map(row => row.us))]));

function overview() {
  const line = (name, middle) => of => {
    const times = timesOf(of, middle);
    const [bytes, us] = [...times].sort((a, b) => a[0] - b[0]).at(-1);
    return `<tr><th><a href="#${name(of[0])}">${name(of[0])}</a></th><td>${of[0].transport}</td>` +
      `${fitCells(fitted(times))}<td>${sizeName(bytes)}</td><td>${digits(us)}</td></tr>`;
  };
  const least = all => Math.min(...all);
  const lines = listed(grouped(calls, it => it.collective + it.transport), line(it => dashed(it.collective), least)) +
    listed(grouped(messages, it => it.test + it.transport), line(it => it.test, median));
  const html = table("overview", "", ["", "over", ...FIT, "largest", "time (µs)"], lines);
  return html && section("overview", "Overview", `${html}<p class="small">Of the fastest algorithm at each size, or of the
    median pair of ranks. <b>alpha</b> is what a call takes before its bytes count, <b>1 / beta</b> how many bytes a
    longer call moves in the time that it takes longer. The line is fitted to all sizes, relative to their times; the
    greatest error says how far to trust it.</p>`);
}

// The rows that changed since an earlier run, and the other differences between the runs.
function changed() {
  if (!changes) return "";
  const of = (name, rows) => !rows.length ? "" : `<details ${name === "slower" ? "open" : ""}><summary>${rows.length}
    rows are ${name}</summary>` + table(`changes ${name}`, "",
    ["row", "speed", "interval", "first (µs)", "second (µs)"], listed(rows, row =>
      `<tr><th>${escaped(row.title)}${row.disturbed ? " (disturbed)" : ""}</th>` + cells([row.speed.toFixed(3),
        `${row.low.toFixed(3)} to ${row.high.toFixed(3)}`, digits(row.before), digits(row.now)]) + "</tr>")) + "</details>";
  const tables = of("slower", changes.rows.filter(row => row.speed < 1)) +
    of("faster", changes.rows.filter(row => row.speed >= 1));
  return section("changes", "Changes since an earlier run", listed(changes.head, line => `<p>${escaped(line)}</p>`) +
    (tables && `${tables}<p class="small">Speed: that of the second run divided by that of the first; below 1 it is
    slower. Times are lower quartiles. Disturbed: other programs took much of the ranks' cores.</p>`));
}

// The matrix of all pairs: the darker a cell, the longer a message takes. With more ranks, cells hold no figures.
const CELL = 44, LEFT = 60, NUMBERS = 22, MOST_FIGURES = 24;
// Up to this part between the least and the greatest time, black figures are read best on a cell.
const BLACK_ON = 0.62;

function heat({ test, transport, bytes, matrix_us: matrix, verdict }) {
  const title = `${test} of ${bytes} bytes over ${transport}, us`;
  const all = matrix.flat().filter(us => us !== null);
  const low = Math.min(...all);
  // A span of less than a factor of two is stretched, so that noise does not look like a difference.
  const span = Math.max(Math.log(Math.max(...all) / low), Math.log(2));
  const middle = rank => (rank + 0.5) * CELL;
  const cell = (us, from, to) => {
    const [x, y] = [LEFT + to * CELL, NUMBERS + from * CELL];
    const part = us === null ? 0 : Math.min(1, Math.max(0, Math.log(us / low) / span));
    const mix = (pale, dark) => Math.round(pale + (dark - pale) * part);
    const fill = us === null ? "#eee" : `rgb(${mix(255, 128)}, ${mix(247, 0)}, ${mix(209, 38)})`;
    const figure = us === null || matrix.length > MOST_FIGURES ? "" : `<text x="${x + CELL / 2}" y="${y + CELL / 2 + 4}"
      text-anchor="middle" class="${part > BLACK_ON ? "light" : "dark"}">${us.toFixed((us < 100) + (us < 10))}</text>`;
    return `<g><title>${from} to ${to}: ${us === null ? "not measured" : `${us.toFixed(3)} us`}</title>` +
      `<rect x="${x}" y="${y}" width="${CELL - 1}" height="${CELL - 1}" fill="${fill}"/>${figure}</g>`;
  };
  const numbers = listed(matrix, (_, rank) =>
    `<text x="${LEFT + middle(rank)}" y="${NUMBERS - 6}" text-anchor="middle">${rank}</text>` +
    `<text x="${LEFT - 8}" y="${NUMBERS + middle(rank) + 4}" text-anchor="end">${rank}</text>`);
  const [width, height] = [LEFT + 4, NUMBERS].map(margin => margin + CELL * matrix.length);
  return `<figure><h3>${title}</h3><div class="wide"><svg viewBox="0 0 ${width} ${height}" class="heat" role="img"
    aria-label="${title}" style="width:${width}px">${numbers}${listed(matrix, (row, from) =>
      listed(row, (us, to) => cell(us, from, to)))}</svg></div><figcaption>${listed(verdict.trim().split("\n"),
    line => `<p>${escaped(line)}</p>`)}</figcaption></figure>`;
}

// A plot with several lines. A point with a note has a mark with a tooltip. `log` is the base of a logarithmic
// axis, which has ticks at its powers; an axis without one begins at zero.
const WIDE = 640, HIGH = 400, SIDE = 92, TOP = 14, RIGHT = WIDE - 16, FLOOR = HIGH - 50;
const MARKS = [
  "M-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0-7.2 0Z", "M-3.2-3.2H3.2V3.2H-3.2Z", "M0-4.4L4.2 3.2H-4.2Z",
  "M0-4.6L4.6 0L0 4.6L-4.6 0Z", "M0 4.4L4.2-3.2H-4.2Z", "M-4-1.4H-1.4V-4H1.4V-1.4H4V1.4H1.4V4H-1.4V1.4H-4Z",
];

function axis(values, log, from, to) {
  const [low, high] = log ? [Math.min(...values) / 1.25, Math.max(...values) * 1.25] : [0, Math.max(...values) * 1.06];
  const part = log ? value => Math.log(value / low) / Math.log(high / low) : value => value / high;
  const ticks = [];
  if (log) {
    const power = value => Math.log(value) / Math.log(log);
    const [first, last] = [Math.ceil(power(low)), Math.floor(power(high))];
    const step = Math.max(1, Math.trunc((last - first) / 8 + 1));
    for (let exponent = first; exponent <= last; exponent += step) ticks.push(log ** exponent);
  } else {
    const rough = high / 6;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * ([1, 2, 5].find(step => step * power >= rough) ?? 10);
    for (let nth = 0; nth * step <= high; nth += 1) ticks.push(Number((nth * step).toPrecision(12)));
  }
  return { at: value => (from + part(value) * (to - from)).toFixed(1), ticks };
}

function plot(title, y, series) {
  const points = series.flatMap(one => one.points);
  if (!points.length) return "";
  const [across, up] = [axis(points.map(it => it.x), 2, SIDE, RIGHT), axis(points.map(it => it.y), y.log, FLOOR, TOP)];
  const grid = listed(across.ticks, it => `<path d="M${across.at(it)} ${TOP}V${FLOOR}" class="grid"/>` +
    `<text x="${across.at(it)}" y="${FLOOR + 18}" text-anchor="middle">${sizeName(Math.round(it))}</text>`) +
    listed(up.ticks, it => `<path d="M${SIDE} ${up.at(it)}H${RIGHT}" class="grid"/>` +
      `<text x="${SIDE - 8}" y="${Number(up.at(it)) + 4}" text-anchor="end">${y.tick(it)}</text>`);
  const [centre, middle] = [(SIDE + RIGHT) / 2, (TOP + FLOOR) / 2];
  const line = ({ name, mark, points }) => {
    const path = points.map((it, nth) => `${nth ? "L" : "M"}${across.at(it.x)} ${up.at(it.y)}`).join("");
    const marks = listed(points.filter(it => it.note), it => `<g class="mark" transform="translate(${across.at(it.x)}
      ${up.at(it.y)})"><title>${escaped(it.note)}</title><circle r="9" class="hit"/><path d="${MARKS[mark % 6]}"/></g>`);
    return `<g class="series ${name}"><path d="${path}" class="line"/>${marks}</g>`;
  };
  return `<figure><svg viewBox="0 0 ${WIDE} ${HIGH}" role="img" aria-label="${title}: ${y.label} by size">${grid}
    <path d="M${SIDE} ${TOP}V${FLOOR}H${RIGHT}" class="axis"/>
    <text x="${centre}" y="${HIGH - 8}" class="label" text-anchor="middle">size (bytes)</text>
    <text transform="rotate(-90 16 ${middle})" x="16" y="${middle}" class="label" text-anchor="middle">${y.label}</text>
    ${listed(series, line)}</svg></figure>`;
}

// The tooltip of a mark.
function note(call) {
  const name = call.requested === "auto" ? `auto (${call.algorithm})` : call.requested;
  const lines = call.places.map(row => `${placeName(row)}: ${digits(row.time_us.p50)} µs (${digits(row.time_us.min)} to ` +
    `${digits(row.time_us.p99)}), ${row.busbw_GBps.toFixed(3)} GB/s`);
  if (call.predicted_us !== null) lines.push(`predicted: ${digits(call.predicted_us)} µs`);
  return [`${name}, ${sizeName(call.bytes)}`, ...lines].join("\n");
}

const PERCENTILES = ["p50", "p90", "p99", "stdev"];
const percentiles = row => PERCENTILES.map(name => digits(row.time_us[name]));

// The figures of the plots: a line for each size, a column for each series.
function figures(of, series) {
  const cell = (call, best) => {
    if (!call) return "<td></td>";
    const isAuto = call.requested === "auto";
    const classes = [call.us <= best && "best", !isAuto && call.tuners_choice === call.algorithm && "chosen"];
    return `<td class="${classes.filter(Boolean).join(" ")}">${digits(call.us)}` +
      (call.predicted_us === null ? "" : `<small>${digits(call.predicted_us)}</small>`) +
      (isAuto ? `<small>${call.algorithm}</small>` : "") + "</td>";
  };
  const columns = series.filter(name => of.some(call => call.requested === name));
  const lines = listed(distinct(of.map(call => call.bytes)).sort((a, b) => a - b), bytes => {
    const at = of.filter(call => call.bytes === bytes);
    const best = Math.min(...at.map(call => call.us));
    return `<tr><th>${sizeName(bytes)}</th>` +
      listed(columns, name => cell(at.find(call => call.requested === name), best)) + "</tr>";
  });
  return details("figures", table("figures", "", ["size", ...columns], lines), `Microseconds a call: measured, and
    below it predicted. Bold: the fastest. Framed: the algorithm that the tuner chooses. The column auto shows the
    tuner's choice as it ran, with the algorithm's name.`);
}

// A collective: for each transport plots, lines, figures and percentiles. A series is one entry of --algorithm;
// the tuner's choice at one size may be the algorithm of another series, and the two stay apart.
function collective(all) {
  const name = dashed(all[0].collective);
  const series = distinct(all.map(call => call.requested));
  const isPlotted = all.some(call => call.bytes !== all[0].bytes);
  const entry = (name, mark, label) => `<label class="${name}"><input type="checkbox" class="pick-${name}" checked>
    <svg viewBox="-12 -5 24 10" class="swatch"><path class="line" d="M-12 0H12"/><g class="mark"><path d="${mark}"/></g>
    </svg><span>${label}</span></label>`;
  const colour = nth => `s${nth % COLOURS}`;
  const legend = listed(series, (it, nth) => entry(colour(nth), MARKS[nth % 6], it)) + entry("predicted", "", "predicted");
  const plots = of => {
    const lines = (kind, usOf, y) => series.map((it, nth) => ({
      name: `${colour(nth)} ${kind}`,
      mark: nth,
      points: of.filter(call => call.requested === it && usOf(call) !== null).sort((a, b) => a.bytes - b.bytes)
        .map(call => ({ x: call.bytes, y: y(call, usOf(call)), note: kind === "measured" && note(call) })),
    }));
    const both = y => [...lines("predicted", call => call.predicted_us, y), ...lines("measured", call => call.us, y)];
    const bus = (call, us) => call.busbw_GBps * call.us / us;
    const title = `${name} over ${of[0].transport}`;
    return `<div class="plots">${plot(title, { label: "time of a call", log: 10, tick: duration }, both((_, us) => us))}` +
      `${plot(title, { label: "bus bandwidth (GB/s)", tick: String }, both(bus))}</div>`;
  };
  const over = of => {
    const transport = of[0].transport;
    const line = it => {
      const fit = fitted(timesOf(of.filter(call => call.requested === it), all => all[0]));
      return fit === null ? "" : `<tr><th>${it}</th>${fitCells(fit)}</tr>`;
    };
    const spread = listed(of, call => listed(call.places, row => `<tr><th>${sizeName(row.bytes)}</th>
      <th>${row.requested}</th><th>${placeName(row)}</th>${cells([...percentiles(row), digits(row.busbw_GBps)])}</tr>`));
    return `<h3>over ${transport}</h3>` + (isPlotted ? plots(of) : "") +
      table("fits", transport, ["time = alpha + bytes · beta", ...FIT], listed(series, line)) + figures(of, series) +
      details("percentiles", table("percentiles", transport, ["size", "algorithm", "", ...PERCENTILES, "GB/s"], spread),
        "Microseconds.");
  };
  return section(name, name, (isPlotted ? `<div class="legend">${legend}</div>` : "") +
    listed(grouped(all, call => call.transport), over));
}

// A test of messages between ranks.
function test(all) {
  const name = all[0].test;
  const over = of => {
    const transport = of[0].transport;
    const points = [...timesOf(of, median)].sort((a, b) => a[0] - b[0])
      .map(([x, y]) => ({ x, y, note: `${sizeName(x)}: ${digits(y)} µs` }));
    const y = { label: "time of a message", log: 10, tick: duration };
    const line = [{ name: "s0 measured", mark: 0, points }];
    const pairs = row => row.pairs.length ? row.pairs.map(pair => pair.join("-")).join(", ") : "ring of all";
    const spread = listed(of, row => `<tr><th>${sizeName(row.bytes)}</th><th>${pairs(row)}</th>` +
      `${cells([...percentiles(row), digits(row.rate_GBps)])}</tr>`);
    const plots = points.length > 1 ? `<div class="plots">${plot(`${name} over ${transport}`, y, line)}</div>` : "";
    return `<h3>over ${transport}</h3>${plots}` + details("percentiles",
      table("percentiles", transport, ["size", "pairs", ...PERCENTILES, "GB/s"], spread), "Microseconds.");
  };
  return section(name, name, `<p class="small">Time: ${definitions[name]}.</p>` +
    listed(grouped(all, row => row.transport), over));
}

const pairs = matrices.length ? section("pairs", "All pairs of ranks", `<p class="small">The lower quartile of a message
  between two ranks, each pair alone: the darker, the slower. Row: the rank that sends; column: the receiver.</p>
  <div class="maps">${listed(matrices, heat)}</div>`) : "";
const sections = [changed(), overview(), pairs, ...grouped(messages, row => row.test).map(test),
  ...grouped(calls, call => call.collective).map(collective)].filter(Boolean);
const hiding = listed([...Array(COLOURS).keys()], nth =>
  `section:has(.pick-s${nth}:not(:checked)) figure .s${nth} { display: none }`);
document.getElementById("links").innerHTML = sections.map(([name]) => `<a href="#${name}">${name}</a>`).join(" ");
document.getElementById("results").innerHTML = `<style>${hiding}</style>${facts()}${listed(sections, ([, html]) => html)}`;
document.getElementById("files").insertAdjacentHTML("beforeend",
  `${files.map(name => `<a href="${name}">${name}</a>`).join(", ")}.`);
