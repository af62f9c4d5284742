#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/db_fixture.hpp"

namespace ce::cli {
namespace {

using nlohmann::json;
using test::Finished;

/// Looks at the report in frames, as wide as a desk's and as a phone's screen, with all details closed and open.
constexpr const char* observer = R"html(<!DOCTYPE html>
<html><body>
<iframe src="report.html" width="1280" height="6000"></iframe>
<iframe src="report.html" width="390" height="6000"></iframe>
<pre id="seen"></pre>
<script>
const rows_shown = (page) => [...page.querySelectorAll(".row")].filter((row) => row.offsetHeight > 0).length;
window.onload = () => {
  const seen = [];
  for (const frame of document.querySelectorAll("iframe")) {
    const page = frame.contentDocument, root = page.documentElement;
    const entry = {width: frame.clientWidth, background: getComputedStyle(page.body).backgroundColor};
    entry.overflow = root.scrollWidth - root.clientWidth;
    entry.rows = rows_shown(page);
    for (const details of page.querySelectorAll("details")) details.open = true;
    entry.overflow_open = root.scrollWidth - root.clientWidth;
    entry.details = page.querySelector(".details").offsetHeight;
    const filter = page.getElementById("filter");
    entry.filter = filter.offsetHeight;
    filter.value = "BF16 32768";
    filter.dispatchEvent(new Event("input"));
    entry.filtered = rows_shown(page);
    seen.push(entry);
  }
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
                        fmt::format("--blink-settings=preferredColorScheme={}", dark ? 0 : 1), "--dump-dom",
                        "file://" + path("observer.html")},
                       surroundings(), "", name)
        .wait(std::chrono::seconds(120));
  }

  void add_problems() {
    for (const std::int64_t columns : {4096, 32768})
      for (std::size_t i = 0; i < configs_.size(); ++i) {
        cache::Measurement measured = measurement(i, 45.0 + static_cast<double>(i));
        generator::Problem problem = test::softmax;
        problem.columns = columns;
        measured.key.problem = generator::key_text(problem);
        measured.environment["host"] =
            std::string(300, 'x');  // wider than any screen, without a place to break
        cache_.add(measured);
        measured.environment["driver"] = "590.2";
        measured.median_us *= 1.5;
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
    ASSERT_EQ(seen.size(), 2U);
    for (const json& entry : seen) {
      EXPECT_EQ(entry.at("overflow"), 0) << entry;
      EXPECT_EQ(entry.at("overflow_open"), 0) << entry;
      EXPECT_EQ(entry.at("background"), dark ? "rgb(13, 17, 23)" : "rgb(255, 255, 255)");
      EXPECT_EQ(entry.at("rows"), 2) << "two winners";
      EXPECT_GT(entry.at("details"), 0);
      EXPECT_GT(entry.at("filter"), 0);
      EXPECT_EQ(entry.at("filtered"), 1);
    }
  }
}

}  // namespace
}  // namespace ce::cli
