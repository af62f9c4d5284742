// A shared ce, as programs and the tools of the linker see it. This program is linked with it alone, and uses every name
// that the public headers declare: one that is not shown does not link.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <ce/ce.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <regex>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>

#include "tests/output_of.hpp"

namespace {

using ce::test::output_of;

/// Classes and functions that the public headers mark with CE_API.
std::set<std::string> declared_names() {
  const std::regex marked(R"((?:class|struct) CE_API (\w+)|CE_API [^;{]*?(\w+)\()");
  std::set<std::string> names;
  std::istringstream headers(CE_PUBLIC_HEADERS);
  for (std::string header; std::getline(headers, header, ':');) {
    std::ifstream file(CE_PUBLIC_FOLDER "/" + header);
    EXPECT_TRUE(file) << header;
    const std::string text(std::istreambuf_iterator<char>(file), {});
    for (std::sregex_iterator match(text.begin(), text.end(), marked), end; match != end; ++match)
      names.insert((*match)[1].matched ? (*match)[1] : (*match)[2]);
  }
  return names;
}

/// `Context` of ce::Context::check(), from the name that the linker has for it; empty where it is not one of ce's.
std::string outermost_name(const std::string& symbol) {
  std::smatch parts;
  if (!std::regex_match(symbol, parts, std::regex(R"(_Z(?:T[ISV])?NK?2ce(?:6detail)?(\d+)(.*))"))) return "";
  return parts[2].str().substr(0, std::stoul(parts[1]));
}

TEST(SharedLibrary, ShowsWhatItsHeadersDeclareAndNothingElse) {
  const std::set<std::string> declared = declared_names();
  EXPECT_GT(declared.size(), 30u);
  std::istringstream lines(output_of("nm -D --defined-only '" CE_SHARED_LIBRARY "'"));
  int shown = 0;
  for (std::string line; std::getline(lines, line); ++shown) {
    const std::string symbol = line.substr(line.rfind(' ') + 1);
    EXPECT_TRUE(declared.contains(outermost_name(symbol))) << symbol;
  }
  EXPECT_GT(shown, 100);
}

template <class Error>
bool is_caught(const Error& error) {
  try {
    throw error;
  } catch (const ce::Error& caught) {
    return caught.kind() == error.kind() && dynamic_cast<const Error*>(&caught) != nullptr;
  }
}

TEST(SharedLibrary, HasEveryError) {
  const ce::InvalidArgument argument("a", "b", "c");
  EXPECT_TRUE(is_caught(argument.in("Softmax")) && is_caught(ce::Unsupported("a")));
  EXPECT_TRUE(is_caught(ce::DeviceError("call", 1, "a")) && is_caught(ce::OutOfMemory("call", 2, "a")));
  EXPECT_TRUE(is_caught(ce::CompileError("name", "log", "path")) && is_caught(ce::DatabaseError("a")));
  EXPECT_TRUE(is_caught(ce::NotFound("a")) && is_caught(ce::NotTuned("a", {})));
  EXPECT_TRUE(is_caught(ce::TargetOutOfRange("CrossEntropy", 1, 2, 3)));
  EXPECT_TRUE(is_caught(ce::Error(ce::ErrorKind::interrupted, "a")));
}

TEST(SharedLibrary, HasEveryWord) {
  EXPECT_EQ(ce::version(), CE_VERSION);
  EXPECT_EQ(ce::parse_dtype(ce::name(ce::DType::bf16)), ce::DType::bf16);
  EXPECT_EQ(ce::parse_reduction(ce::name(ce::Reduction::sum)), ce::Reduction::sum);
  EXPECT_EQ(ce::name(ce::Policy::frozen), "frozen");
  EXPECT_EQ(ce::name(ce::Origin::nearest), "nearest");
  EXPECT_EQ(ce::name(ce::ErrorKind::compile), "compile error");
  std::array<float, 6> elements{};
  EXPECT_EQ(ce::tensor(std::span(elements), 2, 3), ce::tensor(elements.data(), 2, 3));
  EXPECT_EQ(ce::batched(elements.data(), 1, 2, 3, 6).rows, 2);
  EXPECT_EQ(ce::class_dimension_second(elements.data(), 1, 2, 3).columns, 2);
}

TEST(SharedLibrary, Logs) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / "ce_exports_test_folder.db";
  std::filesystem::create_directories(folder);
  std::string lines;
  ce::set_log_sink([&](ce::LogLevel, std::string_view line) { lines += line; });
  { const ce::Context context({.device = "host", .database = folder.string()}); }
  ce::set_log_sink({});
  std::filesystem::remove(folder);
  EXPECT_NE(lines.find(folder.string()), std::string::npos) << "a folder is no database: " << lines;
  EXPECT_TRUE(ce::is_wanted(ce::LogLevel::warning));
}

/// Calls of every operation that are refused, which needs no kernel.
template <class Operation>
void expect_every_call(ce::Context& context) {
  EXPECT_THROW(ce::run(Operation{}, {}), ce::InvalidArgument) << Operation::name;
  EXPECT_THROW(context.run(Operation{}, {}), ce::InvalidArgument) << Operation::name;
  EXPECT_THROW(static_cast<void>(context.prepare(Operation{}, {})), ce::InvalidArgument) << Operation::name;
}

TEST(SharedLibrary, HasEveryCall) {
  const std::string file = (std::filesystem::path(testing::TempDir()) / "ce_exports_test.db").string();
  const ce::ContextOptions options{.device = "host", .database = file, .policy = ce::Policy::lookup};
  ce::configure_default_context(options);
  ce::Context context(options);
  expect_every_call<ce::Softmax>(context);
  expect_every_call<ce::LogSoftmax>(context);
  expect_every_call<ce::SoftmaxBackward>(context);
  expect_every_call<ce::LogSoftmaxBackward>(context);
  expect_every_call<ce::CrossEntropy>(context);
  expect_every_call<ce::CrossEntropyBackward>(context);
  EXPECT_EQ(ce::default_context().device_name(), "host");

  ce::Memory memory = context.allocate(4);
  memory.upload(std::array<float, 1>{2}.data());
  ce::Memory moved = std::move(memory);
  memory = std::move(moved);
  float value = 0;
  memory.download(&value);
  EXPECT_EQ(value, 2);
  EXPECT_EQ(memory.bytes(), 4u);
  const ce::Tensor none{.data = memory.data(), .rows = 0, .columns = 4};
  const ce::Plan plan = context.prepare(ce::Softmax{}, {.input = none, .output = none});
  plan.run();
  EXPECT_EQ(plan.choice().config, "");
  context.check();
  context.check(nullptr);
  context.synchronize();
  context.stop_background();
  EXPECT_EQ(context.compiled(), 0);
}

}  // namespace
