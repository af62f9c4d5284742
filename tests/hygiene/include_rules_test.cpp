#include "tests/hygiene/include_rules.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

namespace {

using ce::hygiene::room_of;

using Lines = std::vector<std::string>;

/// With two public headers, of which every room may include the second.
Lines check_includes(const std::string& path, const std::string& text) {
  return ce::hygiene::check_includes(path, text, {"ce/ce.hpp", "ce/error.hpp"});
}

/// The headers that ce_library() installs, from a list separated by colons.
std::set<std::string> installed_headers() {
  std::set<std::string> headers;
  std::istringstream list(CE_PUBLIC_HEADERS);
  for (std::string header; std::getline(list, header, ':');) headers.insert(header);
  return headers;
}

TEST(IncludeRules, RoomsAreFoundByPath) {
  EXPECT_EQ(room_of("base/digest.hpp"), "base");
  EXPECT_EQ(room_of("include/ce/error.hpp"), "include/ce");
  EXPECT_EQ(room_of("ce/problem.hpp"), "ce");
  EXPECT_EQ(room_of("runtime/host/scheduler.cpp"), "runtime/host");
  EXPECT_EQ(room_of("runtime/device.hpp"), "runtime");
  EXPECT_EQ(room_of("cache"), "");
  EXPECT_EQ(room_of("cached/a.hpp"), "");
}

TEST(IncludeRules, DownwardIncludesPass) {
  EXPECT_EQ(check_includes("cli/main.cpp", "#include \"ce/ce.hpp\"\n#include \"tuner/search.hpp\"\n"),
            Lines());
  EXPECT_EQ(
      check_includes("tuner/search.cpp", "#include \"cache/cache.hpp\"\n#include \"runtime/device.hpp\"\n"),
      Lines());
  EXPECT_EQ(check_includes("cache/cache.cpp", "#include \"cache/keys.hpp\"\n#include <sqlite3.h>\n"),
            Lines());
  EXPECT_EQ(check_includes("runtime/host/device.cpp", "#include \"templates/host.hpp\"\n"), Lines());
  EXPECT_EQ(check_includes("templates/operations/softmax.cuh", "#include \"device/device.cuh\"\n"), Lines());
  EXPECT_EQ(check_includes("include/ce/ce.hpp", "#include \"ce/error.hpp\"\n#include <span>\n"), Lines());
  EXPECT_EQ(check_includes("base/log.cpp", "#include \"ce/error.hpp\"\n"), Lines());
}

TEST(IncludeRules, UpwardIncludesAreFound) {
  EXPECT_EQ(check_includes("cache/keys.cpp", "#include <map>\n\n#include \"tuner/search.hpp\"\n"),
            Lines{"cache/keys.cpp:3: cache must not include tuner/search.hpp"});
  EXPECT_EQ(check_includes("base/log.cpp", "#include \"ce/problem.hpp\"\n").size(), 1);
  EXPECT_EQ(check_includes("tuner/measure.cpp", "#include \"ce/ce.hpp\"\n").size(), 1);
  EXPECT_EQ(check_includes("ce/context.cpp", "#include \"cli/sweep.hpp\"\n").size(), 1);
  EXPECT_EQ(check_includes("templates/operations/softmax.cuh", "#include \"generator/space.hpp\"\n").size(),
            1);
  EXPECT_EQ(check_includes("python/csrc/call.cpp", "#include \"ce/request.hpp\"\n").size(), 1);
}

TEST(IncludeRules, TemplatesStandOnEachOtherInOneOrder) {
  const std::vector<std::string> folders{"device", "row", "operations", "kernels", "linear"};
  for (std::size_t from = 0; from < folders.size(); ++from)
    for (std::size_t to = 0; to < folders.size(); ++to)
      EXPECT_EQ(
          check_includes("templates/" + folders[from] + "/a.cuh", "#include \"" + folders[to] + "/b.cuh\"\n")
              .size(),
          to > from ? 1 : 0)
          << folders[from] << " includes " << folders[to];
  EXPECT_EQ(check_includes("templates/row/ring.cuh", "#include \"ring_layout.cuh\"\n"), Lines());
  EXPECT_EQ(check_includes("templates/ring_layout.cuh", "#include \"kernels/pipeline.cuh\"\n").size(), 1);
}

TEST(IncludeRules, SidewaysIncludesAreFound) {
  const std::vector<std::string> siblings{"cache", "runtime", "generator"};
  for (const std::string& from : siblings)
    for (const std::string& to : siblings) {
      const Lines found = check_includes(from + "/a.cpp", "#include \"" + to + "/b.hpp\"\n");
      EXPECT_EQ(found.size(), from == to ? 0 : 1) << from << " includes " << to;
    }
  EXPECT_EQ(check_includes("runtime/device.cpp", "#include \"templates/softmax.hpp\"\n").size(), 1);
  EXPECT_EQ(check_includes("runtime/device.cpp", "#include \"templates/device/tensor_map.cuh\"\n"), Lines())
      << "what kernels and devices tell each other";
  EXPECT_EQ(check_includes("cache/cache.cpp", "#include \"templates/softmax.hpp\"\n").size(), 1);
}

TEST(IncludeRules, DisguisesDoNotHelp) {
  EXPECT_EQ(check_includes("cache/a.cpp", "  #  include <runtime/device.hpp>\n").size(), 1);
  EXPECT_EQ(check_includes("cache/a.cpp", "#include \"../runtime/device.hpp\"\n").size(), 1);
}

TEST(IncludeRules, PublicHeadersShowNothingPrivate) {
  for (const char* header :
       {"\"base/digest.hpp\"", "\"ce/request.hpp\"", "\"tuner/search.hpp\"", "\"cache/cache.hpp\"",
        "\"impl.hpp\"", "<cuda.h>", "<fmt/format.h>", "<runtime/device.hpp>", "<stdint.h>"})
    EXPECT_EQ(check_includes("include/ce/ce.hpp", std::string("#include ") + header + "\n").size(), 1)
        << header;
  EXPECT_EQ(check_includes("include/ce/ce.hpp", "#include <cuda.h>\n"),
            Lines{"include/ce/ce.hpp:1: a public header must not include cuda.h"});
  EXPECT_EQ(check_includes("ce/request.hpp", "#include \"generator/problem.hpp\"\n"), Lines());
  EXPECT_EQ(check_includes("ce/context.cpp", "#include <fmt/format.h>\n#include \"tuner/search.hpp\"\n"),
            Lines());
}

TEST(IncludeRules, EveryFileKeepsThem) {
  const std::filesystem::path top = CE_SOURCE_DIR;
  const std::set<std::string> public_headers = installed_headers();
  ASSERT_TRUE(public_headers.contains("ce/ce.hpp"));
  const auto files = ce::hygiene::room_files(top);
  std::set<std::string_view> seen;
  for (const auto& file : files) {
    std::ifstream stream(top / file);
    ASSERT_TRUE(stream) << file;
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    seen.insert(room_of(file.native()));
    for (const std::string& violation :
         ce::hygiene::check_includes(file.generic_string(), text, public_headers))
      ADD_FAILURE() << violation;
  }
  for (const char* room : {"include/ce", "base", "templates", "cache", "generator", "runtime", "runtime/host",
                           "tuner", "ce", "cli", "c", "python/csrc"})
    EXPECT_TRUE(seen.contains(room)) << "no file of " << room << " was checked";
}

}  // namespace
