#include "cli/report/style.hpp"

namespace ce::cli {

const std::string_view report_style = R"css(
  :root { color-scheme: light dark;
    --paper: #ffffff; --raised: #f6f8fa; --ink: #1f2328; --faint: #59636e; --grid: #d9dee3;
    --accent: #0969da; --tint: #ddf0ff; --bad: #cf222e; --bad-tint: #ffebe9; --good: #1a7f37; --good-tint: #dafbe1;
    --unsure: #7d4e00; --unsure-tint: #fff4cf; }
  @media (prefers-color-scheme: dark) { :root {
    --paper: #0d1117; --raised: #161b22; --ink: #e6edf3; --faint: #9198a1; --grid: #30363d;
    --accent: #58a6ff; --tint: #11335a; --bad: #ff7b72; --bad-tint: #4a1517; --good: #3fb950; --good-tint: #10371d;
    --unsure: #e3b341; --unsure-tint: #3d2e07; } }
  * { box-sizing: border-box; }
  body { margin: 0 auto; max-width: 76rem; padding: 2rem 1.5rem 4rem; background: var(--paper); color: var(--ink);
    font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
  h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; }
  h2 { font-size: 1.35rem; margin: 3rem 0 .8rem; padding-top: 1rem; border-top: 1px solid var(--grid); }
  h3 { font-size: 1.1rem; margin: 2.4rem 0 .3rem; }
  h4 { font-size: .95rem; margin: 1.6rem 0 .4rem; }
  p { margin: .3rem 0 .8rem; max-width: 46rem; }
  a { color: var(--accent); }
  code, .mono { font: .85em/1.45 ui-monospace, monospace; }
  [hidden] { display: none !important; }
  .faint, figcaption span { color: var(--faint); }
  nav ul { padding: 0; margin: .6rem 0; display: flex; flex-wrap: wrap; gap: .3rem 1.4rem; list-style: none; }
  input { font: inherit; color: inherit; background: var(--raised); border: 1px solid var(--grid); border-radius: 6px;
    padding: .4rem .7rem; width: 100%; max-width: 24rem; }
  .facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); gap: .9rem 1.5rem; margin: 0; }
  .facts dt, .head { font-size: .75rem; letter-spacing: .02em; color: var(--faint); }
  .facts dd { margin: 0; }
  .facts .large { font-size: 1.25rem; font-weight: 600; font-variant-numeric: tabular-nums; }
  .plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 21rem), 1fr)); gap: 1rem; }
  figure { margin: 0; padding: .8rem; border: 1px solid var(--grid); border-radius: 8px; }
  figure svg { display: block; width: 100%; height: auto; }
  figcaption { font-weight: 600; font-size: .85rem; margin-bottom: .5rem; }
  figcaption span { font-weight: 400; }
  .list { border-top: 1px solid var(--grid); content-visibility: auto; contain-intrinsic-size: auto 30rem; }
  .row { border-bottom: 1px solid var(--grid); }
  .row[open] { background: var(--raised); }
  summary { cursor: pointer; padding: .35rem .5rem; list-style: none; }
  summary::-webkit-details-marker { display: none; }
  summary:hover { background: var(--raised); }
  summary:focus-visible, input:focus-visible, a:focus-visible { outline: 2px solid var(--accent); outline-offset: -1px; }
  .winner, .head { display: grid; gap: 0 .9rem; align-items: baseline;
    grid-template-columns: 2.6rem 10rem minmax(0, 1fr) 6rem 5rem 8rem; }
  .head { padding: .2rem .5rem; }
  .change { display: grid; gap: 0 .9rem; align-items: baseline; grid-template-columns: minmax(0, 1fr) 6rem 16rem; }
  .num { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
  .share { font-variant-numeric: tabular-nums; text-align: right; padding: 0 .4rem; border-radius: 4px;
    background: linear-gradient(to right, var(--tint) var(--part), transparent var(--part)) var(--raised); }
  .timed { display: block; font-size: .7rem; color: var(--faint); }
  .verdict { font-style: normal; font-size: .8rem; padding: .05rem .45rem; border-radius: 1rem; white-space: nowrap;
    background: var(--raised); color: var(--faint); }
  .verdict.slower { background: var(--bad-tint); color: var(--bad); font-weight: 600; }
  .verdict.faster { background: var(--good-tint); color: var(--good); }
  .verdict.unsure { background: var(--unsure-tint); color: var(--unsure); }
  .details { padding: .2rem .8rem 1rem; font-size: .87rem; }
  .scroll { overflow-x: auto; max-width: 100%; }
  table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
  th { text-align: left; font-weight: 400; color: var(--faint); font-size: .75rem; vertical-align: bottom; }
  th, td { padding: .2rem .9rem .2rem 0; white-space: nowrap; }
  td { border-top: 1px solid var(--grid); vertical-align: top; }
  th.num, td.num { text-align: right; }
  .axes { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 30rem), 1fr)); gap: 1rem; }
  .axes section { padding: .8rem; border: 1px solid var(--grid); border-radius: 8px; }
  .axes h4 { margin: 0 0 .5rem; }
  .axis { display: grid; grid-template-columns: 4.6rem minmax(0, 1fr); gap: .6rem; margin: .35rem 0; }
  .small { font-size: .7rem; white-space: nowrap; }
  .axis ul { display: flex; flex-wrap: wrap; align-items: start; align-content: start; gap: .3rem; margin: 0; padding: 0; list-style: none; }
  .axis li { font-size: .8rem; padding: .1rem .5rem; border-radius: 5px; border: 1px solid var(--grid); white-space: nowrap;
    background: linear-gradient(to right, var(--tint) var(--part), transparent var(--part)); }
  @media (max-width: 46rem) {
    body { padding: 1.2rem .9rem 3rem; }
    .head { display: none; }
    .winner { grid-template-columns: 2.6rem minmax(0, 1fr) auto; gap: .1rem .7rem; padding: .55rem .3rem; }
    .winner .config { grid-column: 1 / -1; grid-row: 2; }
    .winner .share { grid-column: 3; grid-row: 1; min-width: 6rem; }
    .winner .time { grid-column: 1 / 3; grid-row: 3; text-align: left; }
    .winner .speed { grid-column: 3; grid-row: 3; }
    .change { grid-template-columns: minmax(0, 1fr) auto; }
    .change .why { grid-column: 1 / -1; }
    .details { padding: .2rem .3rem 1rem; }
  }
  @media print { .filter { display: none; } }
)css";

const std::string_view report_script = R"js(
const field = document.getElementById("filter");
const apply = () => {
  const words = field.value.toLowerCase().split(" ");
  for (const row of document.getElementsByClassName("row")) {
    const text = (row.dataset.text + row.firstElementChild.textContent).toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
};
field.addEventListener("input", apply);
field.parentElement.hidden = false;
apply();
)js";

const std::string_view report_script_digest = "JjSUMFiC8NqBLxUKeRytL70gqI77cbSIxI0eXcEEAkg=";

}  // namespace ce::cli
