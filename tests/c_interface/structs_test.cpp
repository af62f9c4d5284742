#include "c/structs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

namespace ce::c {
namespace {

/// As the first header had it, as today's has it, and as a later one will.
struct First {
  std::size_t struct_size;
  std::int64_t a;
};
struct Options {
  std::size_t struct_size;
  std::int64_t a, b;
};
struct Later {
  std::size_t struct_size;
  std::int64_t a, b, c;
};
constexpr Options initial{.struct_size = sizeof(Options), .a = 10, .b = 20};

template <class Given>
Options read(const Given& given) {
  Options storage;
  return read_struct("options", reinterpret_cast<const Options&>(given), initial, sizeof(First), storage);
}

TEST(Structs, OfThisSizeAreReadWhereTheyAre) {
  const Options given{.struct_size = sizeof(Options), .a = 1, .b = 2};
  Options storage;
  EXPECT_EQ(&read_struct("options", given, initial, sizeof(First), storage), &given);
}

TEST(Structs, OfOlderProgramsHaveTheDefaultsOfWhatTheyLack) {
  const First given{.struct_size = sizeof(First), .a = 1};
  const Options known = read(given);
  EXPECT_EQ(known.a, 1);
  EXPECT_EQ(known.b, 20);
}

TEST(Structs, OfNewerProgramsMayNotSayWhatThisVersionDoesNotKnow) {
  Later given{.struct_size = sizeof(Later), .a = 1, .b = 2, .c = 0};
  EXPECT_EQ(read(given).b, 2);
  given.c = 3;
  try {
    read(given);
    FAIL() << "a field that nobody heeds";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.argument(), "options.struct_size");
    EXPECT_EQ(error.value(), "32");
    EXPECT_THAT(error.expected(), testing::StartsWith("24, or zero"));
  }
}

TEST(Structs, WithoutASizeAreRefused) {
  for (const std::size_t size : {std::size_t{0}, sizeof(First) - 1}) {
    const Options given{.struct_size = size, .a = 1, .b = 2};
    EXPECT_THROW(read(given), InvalidArgument);
  }
}

TEST(Structs, AreWrittenAsFarAsTheCallerKnowsThem) {
  const Options value{.struct_size = sizeof(Options), .a = 1, .b = 2};
  Options older{.struct_size = sizeof(First), .a = 0, .b = 7};
  write_struct(older, value);
  EXPECT_EQ(older.struct_size, sizeof(First));
  EXPECT_EQ(older.a, 1);
  EXPECT_EQ(older.b, 7);

  Later newer{.struct_size = sizeof(Later), .a = 0, .b = 0, .c = 7};
  write_struct(reinterpret_cast<Options&>(newer), value);
  EXPECT_EQ(newer.struct_size, sizeof(Later));
  EXPECT_EQ(newer.b, 2);
  EXPECT_EQ(newer.c, 0);
}

}  // namespace
}  // namespace ce::c
