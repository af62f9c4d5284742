// Filters and sorts the problems of the page: winners, changes, plots, heat maps and time lines alike. Whatever shows a
// problem has its number in data-p; the row of its winner, #pN, has its words and values.
"use strict";

const filter = document.getElementById("filter");
const order = document.getElementById("order");
const count = document.getElementById("count");
const marks = [...document.querySelectorAll("[data-p]")];
const charts = [...document.querySelectorAll("figure svg")];
const boxes = [...document.querySelectorAll(".box")];  // sections and figures, of a kind of problems each

const problems = new Map();
for (const row of document.querySelectorAll(".row")) {
  const device = row.closest("[data-device]").dataset.device;
  const words = `${device} ${row.dataset.text} ${row.firstElementChild.textContent}`;
  problems.set(row.dataset.p, { words: words.toLowerCase(), values: row.dataset, shown: true });
}
const problemOf = (mark) => problems.get(mark.dataset.p);

// ---- filter ----

const isShown = (element) => element.querySelector("[data-p]:not([hidden])") !== null;

/** A line leads through the points that are shown; one without any has no place in the legend. */
const redraw = (chart) => {
  const legend = chart.nextElementSibling?.matches(".legend") ? chart.nextElementSibling.children : [];
  chart.querySelectorAll(".series").forEach((line, i) => {
    const points = [...line.querySelectorAll("circle:not([hidden])")];
    const path = points.map((point) => `${point.getAttribute("cx")} ${point.getAttribute("cy")}`);
    line.querySelector("path").setAttribute("d", path.length ? `M${path.join("L")}` : "");
    legend[i]?.toggleAttribute("hidden", path.length === 0);
  });
};

const applyFilter = () => {
  const words = filter.value.toLowerCase().split(/\s+/);
  let shown = 0;
  for (const problem of problems.values()) {
    problem.shown = words.every((word) => problem.words.includes(word));
    shown += problem.shown;
  }
  for (const mark of marks) mark.toggleAttribute("hidden", !problemOf(mark).shown);
  charts.forEach(redraw);
  for (const box of boxes) box.toggleAttribute("hidden", !isShown(box));
  count.textContent = shown === problems.size ? "" : `${shown} of ${problems.size} problems`;
};

// ---- sort ----

/** What goes first has the least value. Problems without one go last. */
const ranks = {
  share: (values) => Number(values.share ?? Infinity),
  change: (values) => -Number(values.change ?? -Infinity),
  time: (values) => -Number(values.us ?? -Infinity),
};

const lists = [...document.querySelectorAll(".sorted")].map((list) => {
  const items = [...list.children].filter((item) => item.matches("[data-p], .box"));
  return { list, items, members: new Map(items.map((item) => [item, membersOf(item)])) };
});

function membersOf(item) {
  const inside = item.matches("[data-p]") ? [item] : [...item.querySelectorAll("[data-p]")];
  return [...new Set(inside.map((mark) => mark.dataset.p))].map((p) => problems.get(p).values);
}

const applyOrder = () => {
  const rank = ranks[order.value];
  for (const { list, items, members } of lists) {
    let sorted = items;  // as they were written
    if (rank) {
      const best = new Map(items.map((item) => [item, Math.min(...members.get(item).map(rank))]));
      const compare = (a, b) => (best.get(a) === best.get(b) ? 0 : best.get(a) - best.get(b));
      sorted = [...items].sort(compare);
    }
    list.append(...sorted);
  }
};

// ---- links ----

/** A link to a problem or a cause shows it, opened. */
const openTarget = () => {
  const target = document.getElementById(location.hash.slice(1));
  if (target === null || target.tagName !== "DETAILS") return;
  if (target.hidden) {
    filter.value = "";
    applyFilter();
  }
  target.open = true;
  target.scrollIntoView();
};

filter.addEventListener("input", applyFilter);
order.addEventListener("change", applyOrder);
addEventListener("hashchange", openTarget);
document.getElementById("tools").hidden = false;
applyFilter();  // a browser may keep what was written before
applyOrder();
openTarget();
