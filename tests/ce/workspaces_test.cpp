// Which call gets which scratch memory, on a device that says what is captured.
#include "ce/workspaces.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <set>
#include <vector>

#include "ce/base/error.hpp"
#include "runtime/host/device.hpp"
#include "tests/tuner/device_decorator.hpp"

namespace ce::test {
namespace {

class CapturingDevice : public DeviceDecorator {
 public:
  CapturingDevice() : DeviceDecorator(runtime::open_host_device()) {}
  bool capturing(Stream stream) const override { return captured.contains(stream); }
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
  int allocations = 0, releases = 0, synchronisations = 0;
};

Stream stream(std::uintptr_t number) { return reinterpret_cast<Stream>(number); }

bool is_zero(const void* memory, std::size_t bytes) {
  const auto* data = static_cast<const unsigned char*>(memory);
  return std::all_of(data, data + bytes, [](unsigned char byte) { return byte == 0; });
}

TEST(Workspaces, AStreamKeepsItsMemory) {
  CapturingDevice device;
  Workspaces workspaces(device, 1024);
  Workspace* first = workspaces.get(stream(16), 1000);
  ASSERT_NE(first, nullptr);
  EXPECT_TRUE(is_zero(first, 1000));
  const int before = device.allocations;
  EXPECT_EQ(workspaces.get(stream(16), 1000), first);
  EXPECT_EQ(workspaces.get(stream(16), 10), first);
  EXPECT_EQ(device.allocations, before);
  EXPECT_NE(workspaces.get(stream(32), 1000), first);
  EXPECT_NE(workspaces.get(nullptr, 1000), first);
}

TEST(Workspaces, GrowthKeepsTheOldMemory) {
  CapturingDevice device;
  {
    Workspaces workspaces(device, 1024);
    Workspace* small = workspaces.get(stream(16), 1000);
    small->count = 7;
    Workspace* large = workspaces.get(stream(16), 100'000);
    EXPECT_NE(large, small);
    EXPECT_TRUE(is_zero(large, 100'000));
    EXPECT_EQ(small->count, 7) << "a call that is still running lost its memory";
    EXPECT_EQ(device.releases, 0);
    EXPECT_EQ(workspaces.get(stream(16), 1000), large);
    // Growing by steps doubles, so that there are few steps.
    const int before = device.allocations;
    for (std::int64_t bytes = 100'000; bytes < 1'000'000; bytes += 10'000)
      static_cast<void>(workspaces.get(stream(16), bytes));
    EXPECT_LE(device.allocations, before + 5);
  }
  EXPECT_EQ(device.releases, device.allocations);
}

TEST(Workspaces, EveryCapturedCallGetsItsOwn) {
  CapturingDevice device;
  Workspaces workspaces(device, 4096);
  Workspace* eager = workspaces.get(stream(16), 100);
  device.captured = {stream(16)};
  const int allocations = device.allocations, synchronisations = device.synchronisations;
  std::set<Workspace*> captured;
  for (int call = 0; call < 8; ++call) {
    Workspace* memory = workspaces.get(stream(16), 500);
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
    static_cast<void>(workspaces.get(stream(16), 500));
    ADD_FAILURE() << "4096 bytes held nine times 500, rounded up";
  } catch (const Unsupported& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("capture_bytes"));
    EXPECT_THAT(error.what(), testing::HasSubstr("500"));
    EXPECT_THAT(error.what(), testing::HasSubstr("4096"));
  }
  // Calls that are not captured go on.
  device.captured.clear();
  EXPECT_EQ(workspaces.get(stream(16), 100), eager);
}

TEST(Workspaces, NothingSetAside) {
  CapturingDevice device;
  Workspaces workspaces(device, 0);
  EXPECT_NE(workspaces.get(stream(16), 100), nullptr);
  device.captured = {stream(16)};
  EXPECT_THROW(static_cast<void>(workspaces.get(stream(16), 100)), Unsupported);
}

/// Launches of two threads on one stream mix.
TEST(Workspaces, EachThreadHasItsOwn) {
  CapturingDevice device;
  Workspaces workspaces(device, 1024);
  for (const Stream one : {Stream{}, stream(2), stream(16)}) {  // the second is CU_STREAM_PER_THREAD
    Workspace* here = workspaces.get(one, 100);
    // Both threads live at the same time, so that their ids differ.
    Workspace* there = std::async(std::launch::async, [&] { return workspaces.get(one, 100); }).get();
    EXPECT_NE(here, there);
    EXPECT_EQ(workspaces.get(one, 100), here);
  }
}

}  // namespace
}  // namespace ce::test
