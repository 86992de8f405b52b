/* Draws the charts; tables and pictures answer to pointer and keys. Without this script the page has its tables and the
 * first two charts at rest. */
"use strict";
const $ = (query, root = document) => [...root.querySelectorAll(query)];
const HEIGHT = 250, LEFT = 54, RIGHT = 12, TOP = 8, BOTTOM = 26, MAX_ROWS = 12;
const AXES = {epoch: "epoch", step: "step", relative: "relative time", wall: "wall time (UTC)"};
/* The choices of the reader; they outlive a renewal of the page. */
const chosen = {axis: "epoch", weight: 0, clip: true, range: null, hidden: new Set(), logs: new Set(), tables: {}};
let runs = null, charts = [], cursor = null;

/* An element; names such as "svg:path" are those of SVG. */
function make(name, attributes, ...contents) {
    const [local, space] = name.split(":").reverse();
    const element = document.createElementNS(space ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml", local);
    Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
    element.append(...contents);
    return element;
}

const button = (text, onclick, attributes = {}) => Object.assign(make("button", {type: "button", ...attributes}, text), {onclick});
const checkbox = (text, checked, act) => make("label", {},
    Object.assign(make("input", {type: "checkbox"}), {checked, onchange: (event) => act(event.target.checked)}), text);

const compact = new Intl.NumberFormat("en", {notation: "compact", maximumSignificantDigits: 4});

/* The exponential moving average of TensorBoard, without the bias of its beginning. */
const smooth = (values, weight, last = 0) =>
    values.map((value, i) => (last = last * weight + (1 - weight) * value) / (1 - weight ** (i + 1)));

/* Index of the nearest of ascending values. */
function nearest(values, value) {
    const i = values.findIndex((one) => one >= value);
    return i < 0 ? values.length - 1 : i > 0 && value - values[i - 1] <= values[i] - value ? i - 1 : i;
}

/* Multiples of one of `steps`, or of 1, 2 or 5 times a power of ten. */
function ticks(low, high, n, steps = []) {
    const least = (high - low) / n, power = 10 ** Math.floor(Math.log10(least));
    const step = [...steps, ...[1, 2, 5, 10].map((f) => f * power)].find((s) => s >= 0.999 * least), first = Math.ceil(low / step);
    return Array.from({length: Math.max(0, Math.floor(high / step) - first + 1)}, (_, i) => +((first + i) * step).toPrecision(12));
}

const logTicks = (low, high) => high / low > 300 ? ticks(Math.log10(low), Math.log10(high), 5, [1, 2, 4]).map((e) => 10 ** e) : ticks(low, high, 5);

/* Lowest and highest of what most do: of one quantity a series that has left the others far behind does not count, and
 * neither do values far outside of what nine tenths of a series are. */
function robustRange(series) {
    const all = series.filter(({values}) => values.length > 0).map(({values, group}) => {
        const sorted = Float64Array.from(values).sort(), at = (part) => sorted[Math.round(part * (sorted.length - 1))];
        return {group, min: at(0), low: at(0.05), high: at(0.95), max: at(1)};
    });
    const kept = all.filter((one) => {
        const kin = all.filter(({group}) => group === one.group).sort((a, b) => a.high - b.high), half = (kin.length - 1) >> 1;
        const span = kin[half].high - Math.min(...kin.slice(0, half + 1).map(({low}) => low));
        return !chosen.clip || !(span > 0) || one.high <= kin[half].high + 10 * span;
    });
    const of = (pick, key) => pick(...kept.map((one) => one[key])), low = of(Math.min, "low"), high = of(Math.max, "high");
    const room = chosen.clip && high > low ? 3 * (high - low) : Infinity;
    return [Math.max(of(Math.min, "min"), low - room), Math.min(of(Math.max, "max"), high + room)];
}

const sum = (deltas, at = 0) => deltas.map((delta) => at += delta);

/* An epoch has more steps in some stages than in others; a run's own clock stands still between two starts. */
function place(axis, run, step, seconds) {
    const [firstStep, firstEpoch, length] = run.stages.findLast((stage) => stage[0] <= step);
    const [began, wall] = run.starts.findLast((one) => one[0] < seconds) ?? run.starts[0] ?? [0, 0];
    return {step, epoch: length > 0 ? firstEpoch + (step - firstStep) / length : step, relative: seconds, wall: wall + seconds - began}[axis];
}

const path = (parent, look, style, d) => parent.appendChild(make("svg:path", {class: look, style, d}));
const key = (look, colour) => make("i", {class: `key ${look}`, style: `color:var(--${Number.isInteger(colour) ? "c" : ""}${colour})`});
const hasNote = (isRestart) => runs?.some(({notes}) => notes.some((note) => note[2] === isRestart));
/* In the legends: colour, and where there are such. */
const MARKS = {restart: ["c7", () => hasNote(true)], warning: ["bad", () => hasNote(false)],
    "more ranks than CPUs": ["bad", ({marks}) => marks?.length]};
const dot = (parent, style, x, y) => path(parent, "dot", style, `M${x} ${y}h0`);

class Chart {
    constructor(figure, {series, ...data}) {
        const caption = figure.querySelector("figcaption"), title = caption.textContent;
        Object.assign(this, {figure, series, data, title, note: make("p", {class: "note"}), pointer: 0});
        figure.hidden = false;
        series.forEach((one, i) => {
            [one.kin, one.key] = runs?.length > 1 ? ["", runs[one.run].name] : [title, `${title} ${i}`];
            one.steps = one.step && sum(one.step);
            one.seconds = one.step && sum(one.ms).map((ms) => ms / 1e3);
        });
        const log = button("log", () => {
            log.setAttribute("aria-pressed", !(chosen.logs.delete(title) || !chosen.logs.add(title)));
            this.draw();
        }, {class: "log", "aria-pressed": chosen.logs.has(title)});
        caption.append(log);
        this.legend = series.filter((one) => one.name).map((one) => this.makeKey(one));
        const marks = Object.entries(MARKS).filter(([, [, isShown]]) => isShown(data)).map(([name, [colour]]) =>
            make("span", {}, key("mark", colour), name));
        this.tip = make("div", {class: "tip", role: "status", hidden: ""});
        const what = `${title}: arrow keys read values, plus and minus zoom, shift with arrows moves, Escape shows all`;
        this.svg = make("svg:svg", {tabindex: 0, role: "application", "aria-label": what});
        caption.after(make("div", {class: "legend"}, ...this.legend, ...marks), this.svg, this.note, this.tip);
        this.listen();
        this.setAxis();
    }

    /* A click on a name shows it alone, or all again; one on its line, or the space bar, shows or hides it. */
    makeKey(one) {
        const name = button("", (event) => choose(one, event.shiftKey || event.target.tagName.toLowerCase() === "i"),
            {"data-key": one.key, title: "alone; click on the line, or space bar: on and off"});
        name.onkeydown = name.onkeyup = (event) => void (event.key === " " &&
            (event.preventDefault(), event.type === "keydown" && choose(one, true)));
        name.append(key(`dash${one.dash}`, one.colour), one.name);
        return name;
    }

    setAxis() {
        for (const one of this.series)
            one.at = one.x ?? one.steps.map((step, i) => place(chosen.axis, runs[one.run], step, one.seconds[i]));
    }
    get shown() {
        return this.series.filter((one) => !chosen.hidden.has(one.key) && one.at.length > 0);
    }
    x(value) {
        return LEFT + (value - this.x0) / (this.x1 - this.x0) * (this.width - LEFT - RIGHT);
    }
    y(value) { /* far away coordinates are not drawn by every browser */
        const map = this.isLog ? Math.log : Number, part = (map(value) - map(this.y0)) / (map(this.y1) - map(this.y0));
        return Math.min(HEIGHT + 99, Math.max(-99, HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)));
    }
    isIn({at, y}, i) {
        return at[i] >= this.x0 && at[i] <= this.x1 && (!this.isLog || y[i] > 0);
    }

    measure() {
        this.isLog = chosen.logs.has(this.title);
        this.width = Math.max(240, this.figure.clientWidth - 28);
        [this.x0, this.x1] = chosen.range ?? wholeRange(this);
        const range = robustRange(this.shown.map((one) => ({group: one.group, values: one.y.filter((_, i) => this.isIn(one, i))})));
        const [low, high] = range[0] <= range[1] ? range : [1, 2];
        const room = this.isLog ? Math.max(1.05, (high / low) ** 0.05) : high > low ? (high - low) / 20 : Math.abs(high) / 2 || 1;
        this.y0 = this.isLog ? low / room : this.data.zero && low >= 0 ? 0 : low - room;
        this.y1 = this.isLog ? high * room : high + room;
    }

    draw() {
        this.measure();
        const width = this.width - LEFT - RIGHT, height = HEIGHT - TOP - BOTTOM, box = `${LEFT} ${TOP} ${width} ${height}`;
        this.svg.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
        this.overlay = make("svg:g", {});
        this.curves = make("svg:svg", {class: "plot", x: LEFT, y: TOP, width, height, viewBox: box});
        this.svg.replaceChildren();
        this.drawAxes();
        this.svg.append(this.curves);
        for (const run of runs ?? [])
            for (const [step, seconds, isRestart, text] of chosen.hidden.has(run.name) ? [] : run.notes)
                this.mark(place(chosen.axis, run, step, seconds), isRestart, text);
        for (const [x, text] of this.data.marks ?? [])
            this.mark(x, false, text);
        this.shown.forEach((one) => this.drawSeries(one));
        this.curves.append(this.overlay);
        this.legend.forEach((name) => name.setAttribute("aria-pressed", !chosen.hidden.has(name.dataset.key)));
        this.drawCursor(false);
    }

    mark(x, isRestart, text) {
        path(this.curves, isRestart ? "mark" : "mark bad", "", `M${this.x(x)} ${TOP}V${HEIGHT - BOTTOM}`).append(make("svg:title", {}, text));
    }
    drawAxes() {
        const axis = runs ? chosen.axis : "", isWall = axis === "wall", length = this.x1 - this.x0;
        const [scale, unit] = axis !== "relative" ? [1, ""] : length > 7200 ? [3600, ", hours"] : length > 600 ? [60, ", minutes"] : [1, ", seconds"];
        const text = (attributes, value) => this.svg.append(make("svg:text", attributes, value));
        const clock = (s) => new Date(1e3 * s).toISOString().slice(...length > 172800 ? [5, 16] : [11, length < 300 ? 19 : 16]);
        const steps = isWall ? [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400] : [];
        for (const x of ticks(this.x0 / scale, this.x1 / scale, this.width / 90, steps)) {
            path(this.svg, "grid", "", `M${this.x(x * scale)} ${HEIGHT - BOTTOM}v4`);
            text({x: this.x(x * scale), y: HEIGHT - 8, "text-anchor": "middle"}, isWall ? clock(x) : compact.format(x));
        }
        for (const y of this.isLog ? logTicks(this.y0, this.y1) : ticks(this.y0, this.y1, 5)) {
            path(this.svg, "grid", "", `M${LEFT} ${this.y(y)}H${this.width - RIGHT}`);
            text({x: LEFT - 6, y: this.y(y) + 4, "text-anchor": "end"}, compact.format(y));
        }
        this.note.textContent = `${this.data.y}${this.isLog ? " (logarithmic)" : ""} over ${axis ? AXES[axis] + unit : this.data.x}`;
    }

    drawSeries(one) {
        const {at, y} = one, style = `color:var(--c${one.colour})`, look = `curve dash${one.dash}`;
        const line = (values) => values.map((value, i) => `${this.x(at[i]).toFixed(1)} ${this.y(value).toFixed(1)}`)
            .filter((_, i) => !this.isLog || values[i] > 0).join("L").replace(/^./, "M$&");
        one.smooth = chosen.weight > 0 && y.length > 2 ? smooth(y, chosen.weight) : null;
        path(this.curves, look + (one.smooth ? " raw" : one.faint ? " faint" : ""), style, line(y));
        if (one.smooth)
            path(this.curves, `${look} smooth`, style, line(one.smooth));
        if (one.dots || y.length === 1)
            y.forEach((value, i) => dot(this.curves, style, this.x(at[i]), this.y(value)));
        one.low?.forEach((low, i) => path(this.curves, "curve", style, `M${this.x(at[i])} ${this.y(low)}V${this.y(one.high[i])}`));
        const outside = [...y.keys()].filter((i) => y[i] > this.y1 && this.isIn(one, i));
        if (outside.length > 0) {
            path(this.curves, "clipped", style, `M${this.x(at[outside[0]]) - 5} ${TOP + 9}l5 -9l5 9z`);
            this.note.append(`; \u25b2 ${one.name || this.title}: outside, up to ${compact.format(Math.max(...outside.map((i) => y[i])))}`);
        }
    }

    drawCursor(isHere) {
        this.overlay.replaceChildren();
        this.tip.hidden = true;
        if (cursor === null || cursor < this.x0 || cursor > this.x1)
            return;
        path(this.overlay, "cross", "", `M${this.x(cursor)} ${TOP}V${HEIGHT - BOTTOM}`);
        const all = this.shown.filter(({at, y}) => !this.isLog || y[nearest(at, cursor)] > 0).map((one) => {
            const i = nearest(one.at, cursor), value = (one.smooth ?? one.y)[i], style = `color:var(--c${one.colour})`;
            const epoch = one.steps && place("epoch", runs[one.run], one.steps[i], 0);
            const where = !one.steps ? `${one.at[i]} ${this.data.x}` : `step ${one.steps[i]}` + (epoch ? `, epoch ${+epoch.toFixed(2)}` : "");
            dot(this.overlay, style, this.x(one.at[i]), this.y(value));
            const head = make("th", {}, key(`dash${one.dash}`, one.colour), one.name || this.data.y);
            const cells = [+value.toPrecision(6), one.smooth ? `raw ${+one.y[i].toPrecision(6)}` : "", where].map((text) => make("td", {}, text));
            return [Math.abs(this.y(value) - this.pointer), make("tr", {}, head, ...cells)];
        });
        const limit = all.map(([distance]) => distance).sort((a, b) => a - b)[MAX_ROWS - 1] ?? Infinity;
        this.tip.replaceChildren(make("table", {}, ...all.filter(([distance]) => distance <= limit).map(([, row]) => row)));
        this.tip.hidden = !isHere || all.length === 0;
        const x = this.x(cursor), width = this.tip.offsetWidth, left = x < this.width / 2 ? x + 26 : x + 2 - width;
        this.tip.style.left = `${Math.max(0, Math.min(left, this.figure.clientWidth - width))}px`;
    }

    listen() {
        const box = make("svg:rect", {class: "box", y: TOP, height: HEIGHT - TOP - BOTTOM});
        const per = () => (this.x1 - this.x0) / (this.width - LEFT - RIGHT);
        const value = (event) => this.x0 + (event.clientX - this.svg.getBoundingClientRect().left - LEFT) * per();
        let from = null;
        Object.assign(this.svg, {
            onpointerdown: (event) => {
                from = event.button === 0 ? value(event) : null;
                this.svg.setPointerCapture(event.pointerId);
            },
            onpointermove: (event) => {
                this.pointer = event.clientY - this.svg.getBoundingClientRect().top;
                const to = value(event), points = this.shown.map(({at}) => at[nearest(at, to)]);
                if (from === null)
                    return setCursor(points.length ? points.reduce((a, b) => Math.abs(b - to) < Math.abs(a - to) ? b : a) : null, this);
                box.setAttribute("x", this.x(Math.min(from, to)));
                box.setAttribute("width", Math.abs(to - from) / per());
                this.svg.append(box);
            },
            onpointerup: (event) => {
                const range = [from, value(event)].sort((a, b) => a - b), isZoom = from !== null && range[1] - range[0] > 5 * per();
                from = null;
                box.remove();
                if (isZoom)
                    zoomTo(range);
            },
            onpointercancel: () => box.remove(from = null),
            onpointerleave: () => from === null && setCursor(null, this),
            onwheel: (event) => event.deltaX && (event.preventDefault(), zoomTo([this.x0, this.x1].map((x) => x + event.deltaX * per()))),
            ondblclick: () => zoomTo(null),
            onblur: () => setCursor(null, this),
            onkeydown: (event) => this.press(event),
        });
    }

    press(event) {
        const key = event.ctrlKey || event.metaKey || event.altKey ? "" : event.key, ends = [this.x0, this.x1], length = this.x1 - this.x0;
        const way = {ArrowLeft: -1, ArrowRight: 1}[key], factor = {"+": 0.25, "=": 0.25, "-": 1}[key], middle = cursor ?? this.x0 + length / 2;
        const at = this.shown.reduce((best, one) => one.at.length > best.length ? one.at : best, []);
        const next = cursor === null ? (way > 0 ? 0 : at.length - 1) : nearest(at, cursor) + way;
        if (!way && !factor && key !== "Escape")
            return;
        event.preventDefault();
        if (way && !event.shiftKey)
            return setCursor(at[next] ?? cursor, this);
        zoomTo(way ? ends.map((x) => x + way * length / 10) : factor ? [middle - factor * length, middle + factor * length] : null);
    }
}

/* All charts of a page of runs begin and end at the same x. */
function wholeRange(chart) {
    const ends = (runs ? charts : [chart]).flatMap(({series}) => series.flatMap(({at}) => [at[0], at.at(-1)])).filter(Number.isFinite);
    const low = Math.min(...ends, ...(runs && chosen.axis === "wall" ? [] : [0])), high = Math.max(...ends);
    return high > low ? [low, high] : [low, low + 1];
}

const drawAll = () => charts.forEach((chart) => chart.draw());
const zoomTo = (range) => drawAll(chosen.range = range);
const setCursor = (x, chart) => charts.forEach((one) => one.drawCursor(one === chart), cursor = x);

/* Shows or hides a series, or shows it alone, or all of its kin again. */
function choose({key, kin}, isToggled) {
    const group = charts.flatMap(({series}) => series).filter((one) => one.kin === kin).map((one) => one.key);
    const isAlone = group.every((one) => (one === key) !== chosen.hidden.has(one));
    const hidden = group.filter((one) => isToggled ? chosen.hidden.has(one) !== (one === key) : !isAlone && one !== key);
    group.forEach((one) => chosen.hidden.delete(one));
    hidden.forEach((one) => chosen.hidden.add(one));
    drawAll();
}

function addControls() {
    const axis = make("select", {}), weight = make("input", {type: "range", min: 0, max: 0.99, step: 0.01, value: chosen.weight});
    const shown = make("output", {}, chosen.weight);
    axis.append(...Object.keys(AXES).map((key) => make("option", {value: key}, AXES[key])));
    axis.value = chosen.axis;
    axis.onchange = () => {
        [chosen.axis, chosen.range, cursor] = [axis.value, null, null];
        charts.forEach((chart) => chart.setAxis());
        drawAll();
    };
    weight.oninput = () => drawAll(shown.textContent = chosen.weight = +weight.value);
    document.getElementById("curves").after(make("div", {class: "tools"}, make("label", {}, "x-axis ", axis),
        make("label", {}, "smoothing ", weight, shown), checkbox("ignore outliers", chosen.clip, (is) => drawAll(chosen.clip = is)),
        button("whole range", () => zoomTo(null))));
}

/* Reads the number at the beginning of a text, after a word: "1 h 02 min 03 s" in seconds, or a
 * number. */
function number(text) {
    const units = {d: 86400, h: 3600, min: 60, s: 1}, parts = [...text.matchAll(/([\d.]+) (d|h|min|s)\b/g)];
    return parts.length > 0 ? parts.reduce((all, [, n, unit]) => all + n * units[unit], 0) : parseFloat(text.replace(/^[a-z]\S* /, ""));
}

const compare = (a, b) => number(a) - number(b) || a.localeCompare(b);

/* Columns sort; a table of runs also has a filter, a choice of columns, CSV and parallel coordinates. */
function addTable(table) {
    const kept = chosen.tables[table.id] ??= {words: "", hidden: new Set(), column: null, sign: 1};
    const heads = [...table.tHead.rows[0].cells], names = heads.map((head) => head.textContent), rows = [...table.tBodies[0].rows];
    const update = () => {
        const text = (row) => row.cells[names.indexOf(kept.column)].textContent;
        if (names.includes(kept.column))
            rows.sort((a, b) => kept.sign * compare(text(a), text(b)));
        rows.forEach((row) => row.hidden = !kept.words.toLowerCase().split(" ").every((word) => row.textContent.toLowerCase().includes(word)));
        [table.tHead.rows[0], ...rows].forEach((row) => [...row.cells].forEach((cell, c) => cell.hidden = kept.hidden.has(names[c])));
        heads.forEach((head, c) => head.setAttribute("aria-sort", names[c] !== kept.column ? "none" : kept.sign > 0 ? "ascending" : "descending"));
        table.tBodies[0].append(...rows);
    };
    heads.forEach((head, c) => head.replaceChildren(button(names[c], () => {
        [kept.column, kept.sign] = [names[c], kept.column === names[c] ? -kept.sign : 1];
        update();
    })));
    update();
    if (!table.classList.contains("runs"))
        return;
    const words = make("input", {type: "search", "aria-label": "filter", placeholder: "filter", value: kept.words});
    words.oninput = () => update(kept.words = words.value);
    const columns = names.slice(1).map((name) => checkbox(name, !kept.hidden.has(name),
        () => update(kept.hidden.delete(name) || kept.hidden.add(name))));
    const quote = ({textContent}) => /[",\n]/.test(textContent) ? `"${textContent.replaceAll('"', '""')}"` : textContent;
    const line = (row) => [...row.cells].filter((cell) => !cell.hidden).map(quote).join(",");
    const csv = () => [table.tHead.rows[0], ...rows].filter((row) => !row.hidden).map(line).join("\n");
    table.parentNode.before(make("div", {class: "tools"}, words, make("details", {}, make("summary", {}, "columns"), ...columns),
        ...navigator.clipboard ? [button("copy as CSV", () => navigator.clipboard.writeText(csv()))] : []));
    if (rows.length >= 6)
        addParallel(table, rows, heads.filter((head) => head.dataset.axis !== undefined).map((head) => head.cellIndex), names);
}

/* A line for each run through an axis for each configuration key that differs, and its best values. */
function addParallel(table, rows, columns, names) {
    const gap = Math.max(110, 1100 / columns.length), lines = rows.map((row) => [row, []]);
    const svg = make("svg:svg", {viewBox: `0 0 ${gap * columns.length} 250`, role: "img", "aria-label": "parallel coordinates of the runs"});
    columns.forEach((column, c) => {
        const texts = rows.map((row) => row.cells[column].textContent), values = [...new Set(texts)].sort(compare), x = gap * (c + 0.5);
        const isNumeric = values.every((value) => number(value) === number(value)), ends = [values[0], values.at(-1)].map(number);
        const map = isNumeric && ends[0] > 0 && ends[1] > 50 * ends[0] ? Math.log : Number, [low, high] = ends.map(map);
        const part = (text) => isNumeric ? (map(number(text)) - low) / (high - low || 1) : values.indexOf(text) / (values.length - 1 || 1);
        texts.forEach((text, r) => lines[r][1].push(`${x} ${220 - 180 * part(text)}`));
        svg.append(make("svg:path", {class: "grid", d: `M${x} 40v180`}));
        for (const [text, y] of [[names[column], 16], [values.at(-1), 34], [values[0], 238]])
            svg.append(make("svg:text", {x, y, "text-anchor": "middle"}, text.split(",")[0].slice(0, 18)));
    });
    svg.append(...lines.map(([row, points]) => make("svg:path", {class: "curve", style: $(".key", row)[0].style.cssText, d: `M${points.join("L")}`},
        make("svg:title", {}, row.cells[0].textContent))));
    table.parentNode.after(make("figure", {class: "parallel"}, make("figcaption", {}, "Parallel coordinates"), make("div", {class: "wide"}, svg)));
}

function addPicture(picture) {
    const show = button("", () => {
        const large = make("dialog", {}, picture.cloneNode());
        Object.assign(large, {onclick: () => large.close(), onclose: () => large.remove()});
        document.body.appendChild(large).showModal();
    }, {class: "enlarge", title: "enlarge"});
    picture.replaceWith(show);
    show.append(picture);
}

function start() {
    runs = JSON.parse(document.getElementById("runs")?.textContent ?? "null");
    if (runs)
        addControls();
    charts = $("figure > script").map((data) => new Chart(data.parentNode, JSON.parse(data.textContent)));
    drawAll();
    $("table.sortable").forEach(addTable);
    $("figure > img").forEach(addPicture);
}

/* dtrain report --watch tells when the runs have changed; not while something is held with the pointer. */
async function renew() {
    if (document.querySelector("main :active"))
        return setTimeout(renew, 300);
    const page = await fetch(location).then((answer) => answer.text()).catch(() => "");
    const main = new DOMParser().parseFromString(page, "text/html").querySelector("main");
    const controls = () => $("button, input, select, summary, svg[tabindex], a"), focus = controls().indexOf(document.activeElement);
    if (!main)
        return;
    $("noscript", main).forEach((one) => one.remove());
    document.querySelector("main").replaceWith(main);
    start();
    controls()[focus]?.focus({preventScroll: true});
}

start();
addEventListener("resize", drawAll);
if (/[1-9a-f]/.test(document.querySelector("main").dataset.live))
    new EventSource(`?events=${document.querySelector("main").dataset.live}`).onmessage = renew;
