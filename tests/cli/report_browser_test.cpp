#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "generator/config.hpp"
#include "tests/cli/db_fixture.hpp"

namespace ce::cli {
namespace {

using nlohmann::json;
using test::Finished;

/// Looks at the report in frames, as wide as a phone's, a tablet's and a desk's screen, with all details closed and open.
constexpr const char* observer = R"html(<!DOCTYPE html>
<html><body>
<iframe src="report.html" width="390" height="20000"></iframe>
<iframe src="report.html" width="800" height="20000"></iframe>
<iframe src="report.html" width="1400" height="20000"></iframe>
<pre id="seen"></pre>
<script>
/** What is scrolled to the side is neither cut off nor in the way of others. */
const isScrolled = (element) => element.closest(".scroll") !== null;
const isSeen = (element) => element.checkVisibility();

/** Texts that stand over each other or beyond the edge of the page, or of their chart. */
const misplaced = (page) => {
  const places = [];
  const walker = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode, parent = text.parentElement;
    if (!text.data.trim() || parent.closest("title, script, option") || isScrolled(parent) || !isSeen(parent)) continue;
    const range = page.createRange();
    range.selectNodeContents(text);
    for (const box of range.getClientRects()) places.push({ text: text.data.trim(), node: text, parent, box });
  }
  const edge = 1.5, found = [];
  for (const { text, parent, box } of places) {
    const room = (parent.closest("svg") ?? page.documentElement).getBoundingClientRect();
    if (box.left < room.left - edge || box.right > room.right + edge) found.push(`beyond the edge: ${text}`);
  }
  places.sort((a, b) => a.box.top - b.box.top);
  places.forEach((a, i) => {
    for (let j = i + 1; j < places.length && places[j].box.top < a.box.bottom - edge; ++j) {
      const b = places[j];
      const across = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left);
      const down = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top);
      if (a.node !== b.node && across > edge && down > 2 * edge) found.push(`${a.text} over ${b.text}`);
    }
  });
  return found.slice(0, 5);
};

/** Elements whose content is wider than they are. */
const overflowing = (page) =>
  [...page.body.querySelectorAll("*")]
    .filter((element) => !isScrolled(element) && !element.closest("svg") && element.clientWidth > 0)
    .filter((element) => element.scrollWidth > element.clientWidth + 1)
    .map((element) => `${element.tagName}.${element.className}: ${element.textContent.slice(0, 40)}`)
    .slice(0, 5);

const shown = (page, what) => [...page.querySelectorAll(what)].filter(isSeen);
const change = (row) => Number(row.dataset.change ?? 0);

const look = (frame) => {
  const page = frame.contentDocument, root = page.documentElement;
  // What is far from the screen is measured, too, instead of taken for as long as it may be.
  page.head.append(Object.assign(page.createElement("style"), { textContent: ".list { content-visibility: visible !important; }" }));
  const seen = { width: frame.clientWidth, background: getComputedStyle(page.body).backgroundColor };
  seen.overflow = root.scrollWidth - root.clientWidth;
  seen.rows = shown(page, ".row").length;
  seen.points = shown(page, ".series circle").length;
  seen.cells = shown(page, ".heat tr[data-p]").length;
  seen.misplaced = misplaced(page);
  seen.overflowing = overflowing(page);
  for (const details of page.querySelectorAll("details")) details.open = true;
  seen.overflow_open = root.scrollWidth - root.clientWidth;
  seen.misplaced_open = misplaced(page);
  seen.overflowing_open = overflowing(page);
  seen.details = page.querySelector(".details").offsetHeight;

  const order = page.getElementById("order");
  order.value = "change";
  order.dispatchEvent(new Event("change"));
  seen.worst_first = [...page.querySelectorAll(".list.sorted, .heat tbody")].every((list) => {
    const changes = [...list.children].map((item) => change(page.getElementById(`p${item.dataset.p}`)));
    return changes.every((value, i) => i === 0 || changes[i - 1] >= value);
  });
  order.value = "";
  order.dispatchEvent(new Event("change"));
  const numbers = [...page.querySelectorAll(".row")].map((row) => Number(row.dataset.p));
  seen.in_order_again = numbers.every((number, i) => i === 0 || numbers[i - 1] < number);

  const filter = page.getElementById("filter");
  seen.filter = filter.offsetHeight;
  filter.value = "BF16 32768";
  filter.dispatchEvent(new Event("input"));
  seen.filtered = {
    rows: shown(page, ".row").length, points: shown(page, ".series circle").length,
    cells: shown(page, ".heat tr[data-p]").length, count: page.getElementById("count").textContent,
    misplaced: misplaced(page), paths: [...page.querySelectorAll(".series path")].map((path) => path.getAttribute("d").split("L").length) };
  filter.value = "no such problem";
  filter.dispatchEvent(new Event("input"));
  seen.none = shown(page, ".row, .box").length;

  // Scrolled, nothing stands over the filter.
  filter.value = "";
  filter.dispatchEvent(new Event("input"));
  frame.height = 600;
  page.querySelector(".heat tbody").scrollIntoView();
  const box = filter.getBoundingClientRect();
  seen.on_top = page.elementFromPoint(box.left + 9, box.bottom - 3) === filter;
  filter.value = "no such problem";
  filter.dispatchEvent(new Event("input"));

  const target = page.querySelector(".row");
  target.open = false;
  frame.contentWindow.location.hash = target.id;
  return new Promise((resolve) => setTimeout(() => {
    seen.linked = { open: target.open, shown: isSeen(target), filter: filter.value };
    resolve(seen);
  }, 50));
};

window.onload = async () => {
  const seen = await Promise.all([...document.querySelectorAll("iframe")].map(look));
  document.getElementById("seen").textContent = JSON.stringify(seen);
  console.log("looked");
};
</script>
</body></html>
)html";

class ReportInABrowser : public test::DatabaseTest {
 protected:
  /// The name of one that works; empty where there is none.
  std::string browser() const {
    for (const char* name : {"chromium", "chromium-browser", "google-chrome", "chrome"}) {
      try {
        // What Ubuntu calls chromium-browser may only say how to install it.
        if (test::Child(folder(), {"--version"}, surroundings(), "", name).wait().status == 0) return name;
      } catch (const std::runtime_error&) {
        continue;  // not on PATH
      }
    }
    return {};
  }

  /// What the browser makes of the observer's page.
  Finished look(const std::string& name, bool dark) const {
    test::write_file(folder() / "observer.html", observer);
    return test::Child(folder(),
                       {"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                        "--user-data-dir=" + path("profile"), "--allow-file-access-from-files",
                        "--enable-logging=stderr",
                        fmt::format("--blink-settings=preferredColorScheme={}", dark ? 0 : 1),
                        "--virtual-time-budget=10000", "--dump-dom", "file://" + path("observer.html")},
                       surroundings(), "", name)
        .wait(std::chrono::seconds(120));
  }

  /// Of two numbers of rows and four widths on two devices, with a ceiling, of which one problem became much slower.
  void add_problems() {
    for (const char* device : {"Some GPU|cc=90|sm=132", "Other GPU with a long name|cc=90|sm=132"}) {
      generator::Problem copy{.operation = generator::Operation::copy, .rows = 65536, .columns = 4096};
      cache::Measurement ceiling = measurement(0, 500);
      ceiling.key = {generator::key_text(copy), device};
      ceiling.config = generator::to_text(generator::space(copy, {.capability = 90}).front());
      ceiling.template_digest =
          generator::template_digest(copy.operation, ceiling.config.substr(0, ceiling.config.find('/')));
      ceiling.rows = copy.rows;
      ceiling.bytes = generator::traffic(copy).total();
      cache_.add(ceiling);
      for (const std::int64_t rows : {512, 8192})
        for (const std::int64_t columns : {4096, 32768, 65536, 262144}) add_problem(device, rows, columns);
    }
  }

  void add_problem(const std::string& device, std::int64_t rows, std::int64_t columns) {
    generator::Problem problem = test::softmax;
    problem.rows = rows;
    problem.columns = columns;
    const double us = static_cast<double>(generator::traffic(problem).total()) / 2000 * 1e-3;
    for (std::size_t i = 0; i < configs_.size(); ++i) {
      cache::Measurement measured = measurement(i, us * (1 + 0.1 * static_cast<double>(i)));
      measured.key = {generator::key_text(problem), device};
      measured.rows = rows;
      measured.bytes = generator::traffic(problem).total();
      // Wider than any screen, without a place to break.
      measured.environment["host"] = std::string(300, 'x');
      measured.environment["tag.job"] = std::string(300, 'y');
      measured.created_at = "2030-01-02T03:04:05.000Z";
      cache_.add(measured);
      measured.environment["driver"] = "590.2";
      measured.created_at = "2030-02-03T04:05:06.000Z";
      measured.median_us *= columns == 32768 ? 1.5 : 1;
      cache_.add(measured);
    }
  }
};

std::vector<std::string> console_lines(const std::string& log) {
  std::vector<std::string> lines;
  std::istringstream stream(log);
  for (std::string line; std::getline(stream, line);)
    if (line.find(":CONSOLE") != std::string::npos) lines.push_back(line);
  return lines;
}

TEST_F(ReportInABrowser, FitsScreensWithoutErrorsInLightAndDark) {
  const std::string name = browser();
  if (name.empty()) GTEST_SKIP() << "no Chromium or Chrome on PATH";
  add_problems();
  ASSERT_EQ(text({"report", "--html", path("report.html")}).status, 0);
  for (const bool dark : {false, true}) {
    const Finished looked = look(name, dark);
    ASSERT_EQ(looked.status, 0) << looked.err;
    const std::vector<std::string> lines = console_lines(looked.err);
    ASSERT_EQ(lines.size(), 1U) << looked.err;
    EXPECT_NE(lines[0].find("\"looked\""), std::string::npos) << lines[0];
    const std::size_t begin = looked.out.find("<pre id=\"seen\">") + 15;
    const json seen = json::parse(looked.out.substr(begin, looked.out.find("</pre>") - begin));
    ASSERT_EQ(seen.size(), 3U);
    for (const json& entry : seen) {
      SCOPED_TRACE(entry.dump());
      EXPECT_EQ(entry.at("overflow"), 0);
      EXPECT_EQ(entry.at("overflow_open"), 0);
      for (const char* list : {"misplaced", "misplaced_open", "overflowing", "overflowing_open"})
        EXPECT_EQ(entry.at(list), json::array()) << list;
      EXPECT_EQ(entry.at("background"), dark ? "rgb(13, 17, 23)" : "rgb(255, 255, 255)");
      EXPECT_EQ(entry.at("rows"), 2 * (8 + 1)) << "problems and a ceiling of each device";
      EXPECT_EQ(entry.at("points"), 2 * (8 + 2 * 8)) << "shares, and times with two drivers";
      EXPECT_EQ(entry.at("cells"), 2 * 8);
      EXPECT_GT(entry.at("details"), 0);
      EXPECT_TRUE(entry.at("worst_first"));
      EXPECT_TRUE(entry.at("in_order_again"));
      EXPECT_GT(entry.at("filter"), 0);
      const json& filtered = entry.at("filtered");
      EXPECT_EQ(filtered.at("rows"), 2 * 2);
      EXPECT_EQ(filtered.at("points"), 2 * (2 + 2 * 2));
      EXPECT_EQ(filtered.at("cells"), 2 * 2);
      EXPECT_EQ(filtered.at("count"), "4 of 18 problems");
      EXPECT_EQ(filtered.at("misplaced"), json::array());
      for (const json& points : filtered.at("paths")) EXPECT_LE(points, 2) << "lines lead to hidden points";
      EXPECT_EQ(entry.at("none"), 0);
      EXPECT_TRUE(entry.at("on_top"));
      EXPECT_EQ(entry.at("linked"), (json{{"open", true}, {"shown", true}, {"filter", ""}}));
    }
  }
}

}  // namespace
}  // namespace ce::cli
