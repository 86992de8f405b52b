/* What test_report_browser.py asks a page of `dtrain report`; `charts` and `$` are those of report.js. */
const chart = (title) => charts.find((one) => one.title === title);

/* Where the pointer is on a value of a chart's axis. */
function pixel(title, x) {
    const one = chart(title);
    one.svg.scrollIntoView({block: "center"});
    const box = one.svg.getBoundingClientRect();
    return [box.left + one.x(x), box.top + box.height / 2];
}

const tip = () => $(".tip").filter((one) => !one.hidden)
    .flatMap((one) => $("tr", one).map((row) => [...row.cells].map((cell) => cell.textContent)));
const labels = (title) => $("text", chart(title).svg).map((text) => text.textContent);
const legend = (title, name) => $(".legend button", chart(title).figure).find((one) => one.textContent === name);
const named = (query, name) => $(query).find((one) => (one.closest("label") ?? one).textContent === name);

/* What of the tooltip cannot be seen: pixels outside of the window, and rows without a name or value. */
function hiddenTip() {
    const box = $(".tip").find((one) => !one.hidden).getBoundingClientRect();
    const cells = $(".tip:not([hidden]) tr").flatMap((row) => [row.cells[0], row.cells[1]]);
    return [Math.min(0, box.left, innerWidth - box.right, innerHeight - box.bottom),
        cells.filter((cell) => cell.getBoundingClientRect().width < 20).length];
}

function set(element, value) {
    element.value = value;
    (element.oninput ?? element.onchange)();
}

/* --- Accessibility --- */

/* The contrast of WCAG 2.1 between a text and what is behind it. */
function contrast(element) {
    const channels = (colour) => colour.match(/[\d.]+/g).map(Number);
    const linear = (c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const luminance = (colour) => channels(colour).slice(0, 3).map((c) => linear(c / 255))
        .reduce((all, c, i) => all + c * [0.2126, 0.7152, 0.0722][i], 0);
    let behind = element;
    while (behind.parentElement && channels(getComputedStyle(behind).backgroundColor)[3] === 0)
        behind = behind.parentElement;
    const both = [element, behind].map((one, i) => luminance(getComputedStyle(one)[i ? "backgroundColor" : "color"]));
    return (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
}

const faint = () => $("p, td, th, dt, dd, a, h1, h2, label, figcaption, button")
    .filter((one) => one.textContent.trim() && one.checkVisibility() && contrast(one) < 4.5)
    .map((one) => [one.tagName, one.className, one.textContent, contrast(one)]);

const nameless = () => $("button, input, select, a, img, svg[tabindex]")
    .filter((one) => !(one.getAttribute("aria-label") || one.getAttribute("alt") || one.title ||
        (one.closest("label") ?? one).textContent.trim()))
    .map((one) => one.outerHTML);

const twice = () => $("[id]").map((one) => one.id).filter((id, i, all) => all.indexOf(id) !== i);

function focused() {
    const one = document.activeElement, name = one.tagName.toLowerCase();
    return [name, name === "body" ? "" : one.textContent];
}
