// Which call gets which scratch memory, on a device that says what is captured.
#include "ce/workspaces.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <set>
#include <vector>

#include "ce/error.hpp"
#include "runtime/host/device.hpp"
#include "tests/tuner/device_decorator.hpp"

namespace ce::test {
namespace {

class CapturingDevice : public DeviceDecorator {
 public:
  CapturingDevice() : DeviceDecorator(runtime::open_host_device()) {}
  bool capturing(Stream stream) const override {
    ++questions;
    return captured.contains(stream);
  }
  void* allocate(std::size_t bytes) override {
    ++allocations;
    return DeviceDecorator::allocate(bytes);
  }
  void release(void* data) noexcept override {
    ++releases;
    DeviceDecorator::release(data);
  }
  void synchronize(Stream stream) override {
    ++synchronisations;
    DeviceDecorator::synchronize(stream);
  }

  std::set<Stream> captured;
  mutable int questions = 0;
  int allocations = 0, releases = 0, synchronisations = 0;
};

Stream stream(std::uintptr_t number) { return reinterpret_cast<Stream>(number); }

bool is_zero(const void* memory, std::size_t bytes) {
  const auto* data = static_cast<const unsigned char*>(memory);
  return std::all_of(data, data + bytes, [](unsigned char byte) { return byte == 0; });
}

Workspace* get(Workspaces& workspaces, Stream on, const void* output, std::int64_t bytes) {
  return workspaces.get(on, output, bytes).memory;
}

/// An output of a call.
const void* output(std::uintptr_t number) { return reinterpret_cast<const void*>(number); }

/// More than a workspace of one output may have, so that its stream's serves.
constexpr std::int64_t many_bytes = 400'000;

TEST(Workspaces, AnOutputKeepsItsMemory) {
  CapturingDevice device;
  Workspaces workspaces(device, 1024);
  Workspace* first = get(workspaces, stream(16), output(1), 1000);
  ASSERT_NE(first, nullptr);
  EXPECT_TRUE(is_zero(first, 1000));
  const int allocations = device.allocations, questions = device.questions;
  EXPECT_EQ(get(workspaces, stream(16), output(1), 1000), first);
  EXPECT_EQ(get(workspaces, stream(16), output(1), 10), first);
  EXPECT_EQ(device.questions, questions) << "a known output asked whether the stream is captured";
  EXPECT_NE(get(workspaces, stream(16), output(2), 1000), first);
  EXPECT_NE(get(workspaces, stream(32), output(1), 1000), first);
  EXPECT_NE(get(workspaces, nullptr, output(1), 1000), first);
  EXPECT_EQ(device.allocations, allocations) << "a first call with an output waited for memory";
}

TEST(Workspaces, AnOutputThatNeedsMoreGetsMore) {
  CapturingDevice device;
  Workspaces workspaces(device, 1024);
  Workspace* small = get(workspaces, stream(16), output(1), 1000);
  small->count = 7;
  Workspace* large = get(workspaces, stream(16), output(1), 100'000);
  EXPECT_TRUE(is_zero(large, 100'000));
  EXPECT_EQ(small->count, 7) << "a graph that holds the first call lost its memory";
  EXPECT_EQ(get(workspaces, stream(16), output(1), 1000), large);
}

TEST(Workspaces, ManyOutputsShareTheMemoryOfTheirStream) {
  CapturingDevice device;
  Workspaces workspaces(device, 1024);
  std::set<Workspace*> seen;
  for (std::uintptr_t number = 1; number <= 2000; ++number)
    seen.insert(get(workspaces, stream(16), output(number), 1000));
  EXPECT_GT(seen.size(), 100U);
  EXPECT_LT(seen.size(), 1000U);
  Workspace* shared = get(workspaces, stream(16), output(3000), 1000);
  EXPECT_TRUE(seen.contains(shared));
  EXPECT_NE(get(workspaces, stream(32), output(3000), 1000), shared);
  EXPECT_NE(get(workspaces, stream(16), output(1), 1000), shared) << "an output lost its own";
  // Captured calls do not, but no more outputs are remembered for them.
  device.captured = {stream(16)};
  EXPECT_FALSE(seen.contains(get(workspaces, stream(16), output(3000), 500)));
  EXPECT_FALSE(workspaces.get(stream(16), output(3001), 500).stays);
}

/// What later calls may go on with, whether they are captured or not.
TEST(Workspaces, WhatAStreamLendsToAllDoesNotStay) {
  CapturingDevice device;
  Workspaces workspaces(device, 1024);
  EXPECT_TRUE(workspaces.get(stream(16), output(1), 100).stays);
  EXPECT_TRUE(workspaces.get(stream(16), output(1), 100).stays);
  EXPECT_FALSE(workspaces.get(stream(16), output(2), many_bytes).stays);
  EXPECT_FALSE(workspaces.get(stream(16), output(2), many_bytes).stays);
  device.captured = {stream(16)};
  EXPECT_TRUE(workspaces.get(stream(16), output(3), 100).stays);
}

TEST(Workspaces, AStreamKeepsItsMemory) {
  CapturingDevice device;
  Workspaces workspaces(device, 1024);
  Workspace* first = get(workspaces, stream(16), output(1), many_bytes);
  EXPECT_TRUE(is_zero(first, many_bytes));
  const int before = device.allocations;
  EXPECT_EQ(get(workspaces, stream(16), output(1), many_bytes), first);
  EXPECT_EQ(get(workspaces, stream(16), output(2), many_bytes), first);
  EXPECT_EQ(device.allocations, before);
  EXPECT_NE(get(workspaces, stream(32), output(1), many_bytes), first);
  EXPECT_NE(get(workspaces, nullptr, output(1), many_bytes), first);
}

TEST(Workspaces, GrowthKeepsTheOldMemory) {
  CapturingDevice device;
  {
    Workspaces workspaces(device, 1024);
    Workspace* small = get(workspaces, stream(16), output(1), many_bytes);
    small->count = 7;
    Workspace* large = get(workspaces, stream(16), output(1), 2 * many_bytes);
    EXPECT_NE(large, small);
    EXPECT_TRUE(is_zero(large, 2 * many_bytes));
    EXPECT_EQ(small->count, 7) << "a call that is still running lost its memory";
    EXPECT_EQ(device.releases, 0);
    EXPECT_EQ(get(workspaces, stream(16), output(1), many_bytes), large);
    // Growing by steps doubles, so that there are few steps.
    const int before = device.allocations;
    for (std::int64_t bytes = 2 * many_bytes; bytes < 20 * many_bytes; bytes += many_bytes / 10)
      static_cast<void>(get(workspaces, stream(16), output(1), bytes));
    EXPECT_LE(device.allocations, before + 5);
  }
  EXPECT_EQ(device.releases, device.allocations);
}

TEST(Workspaces, EveryCapturedOutputGetsItsOwn) {
  CapturingDevice device;
  Workspaces workspaces(device, 4096);
  Workspace* eager = get(workspaces, stream(16), output(100), 100);
  device.captured = {stream(16)};
  const int allocations = device.allocations, synchronisations = device.synchronisations;
  std::set<Workspace*> captured;
  for (std::uintptr_t call = 0; call < 8; ++call) {
    Workspace* memory = get(workspaces, stream(16), output(call), 500);
    EXPECT_TRUE(is_zero(memory, 500));
    for (Workspace* other : captured)
      EXPECT_GE(std::abs(reinterpret_cast<std::byte*>(memory) - reinterpret_cast<std::byte*>(other)), 500);
    captured.insert(memory);
  }
  EXPECT_EQ(captured.size(), 8);
  EXPECT_FALSE(captured.contains(eager));
  EXPECT_EQ(device.allocations, allocations) << "nothing may be allocated during a capture";
  EXPECT_EQ(device.synchronisations, synchronisations);

  try {
    static_cast<void>(get(workspaces, stream(16), output(8), 500));
    ADD_FAILURE() << "4096 bytes held nine times 500, rounded up";
  } catch (const Unsupported& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("capture_bytes"));
    EXPECT_THAT(error.what(), testing::HasSubstr("500"));
    EXPECT_THAT(error.what(), testing::HasSubstr("4096"));
  }
  // A graph that is captured again needs nothing new, and calls that are not captured go on.
  EXPECT_TRUE(captured.contains(get(workspaces, stream(16), output(3), 500)));
  EXPECT_EQ(get(workspaces, stream(16), output(100), 100), eager);
  device.captured.clear();
  EXPECT_EQ(get(workspaces, stream(16), output(100), 100), eager);
  EXPECT_FALSE(captured.contains(get(workspaces, stream(16), output(8), 500)));
}

TEST(Workspaces, NothingSetAside) {
  CapturingDevice device;
  Workspaces workspaces(device, 0);
  EXPECT_NE(get(workspaces, stream(16), output(1), 100), nullptr);
  device.captured = {stream(16)};
  EXPECT_THROW(static_cast<void>(get(workspaces, stream(16), output(2), 100)), Unsupported);
}

/// Launches of two threads on one stream mix.
TEST(Workspaces, EachThreadHasItsOwn) {
  CapturingDevice device;
  Workspaces workspaces(device, 1024);
  for (const std::int64_t bytes : {std::int64_t{100}, many_bytes})
    for (const Stream one : {Stream{}, stream(2), stream(16)}) {  // the second is CU_STREAM_PER_THREAD
      const auto get_one = [&] { return get(workspaces, one, output(1), bytes); };
      Workspace* here = get_one();
      // Both threads live at the same time, so that their ids differ.
      Workspace* there = std::async(std::launch::async, get_one).get();
      EXPECT_NE(here, there);
      EXPECT_EQ(get_one(), here);
    }
}

}  // namespace
}  // namespace ce::test
