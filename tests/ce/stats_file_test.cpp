// The counters as Prometheus reads them.
#include "ce/stats_file.hpp"

#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "ce/version.hpp"

namespace ce {
namespace {

TEST(StatsFile, IsTextOfPrometheus) {
  const std::string text = prometheus_text({.calls = 1,
                                            .known = 2,
                                            .tuned = 3,
                                            .fallback = 4,
                                            .compiled = 5,
                                            .waited = 6,
                                            .errors = 18446744073709551615u},
                                           42);
  EXPECT_TRUE(text.ends_with("\n"));
  const std::regex help("# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) [^\\\\]*"),
      type("# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge)"),
      sample(R"(([a-zA-Z_:][a-zA-Z0-9_:]*)\{([a-zA-Z_][a-zA-Z0-9_]*="[^"\\]*",?)+\} [0-9]+)");
  std::set<std::string> names;
  std::istringstream lines(text);
  int count = 0;
  std::string name;
  for (std::string line; std::getline(lines, line); ++count) {
    std::smatch parts;
    ASSERT_TRUE(std::regex_match(line, parts,
                                 count % 3 == 0   ? help
                                 : count % 3 == 1 ? type
                                                  : sample))
        << line;
    if (count % 3 == 0) {
      name = parts[1];
      EXPECT_TRUE(names.insert(name).second) << "a metric stands once: " << name;
    }
    EXPECT_EQ(parts[1], name);
    EXPECT_TRUE(count % 3 != 1 || (parts[2] == "counter") == name.ends_with("_total")) << line;
  }
  EXPECT_EQ(count, 3 * 8);
  EXPECT_NE(text.find("\nce_calls_total{process=\"42\"} 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\nce_errors_total{process=\"42\"} 18446744073709551615\n"), std::string::npos) << text;
  EXPECT_NE(text.find("version=\"" + std::string(version()) + "\"} 1\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace ce
