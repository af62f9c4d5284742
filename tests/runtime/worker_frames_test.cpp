// The frames between the library and its compile workers.
#include <gtest/gtest.h>

#include <random>

#include "runtime/workers/frames.hpp"
#include "tests/seed.hpp"

namespace ce::runtime::cuda {
namespace {

Frame frame_of(const std::string& bytes) {
  const auto header = decode_header(std::string_view(bytes).substr(0, frame_header_bytes));
  EXPECT_TRUE(header);
  EXPECT_EQ(header->payload_bytes, bytes.size() - frame_header_bytes);
  return {header->kind, bytes.substr(frame_header_bytes)};
}

Job some_job() {
  return {.capability = 90,
          .request = {.name = "softmax/block",
                      .text = std::string("text with a \0 in it", 19),
                      .headers = {{"a.cuh", ""}, {"b.cuh", "\xff\n"}},
                      .options = {"-DA=1", ""},
                      .architecture_specific = true}};
}

TEST(WorkerFrames, GreetingsComeBackAsTheyWere) {
  const Hello hello{.version = "0.1.0", .nvrtc = "libnvrtc.so.13"};
  EXPECT_EQ(decode<Hello>(frame_of(encode(hello))), hello);
  const Ready ready{.protocol = 7, .version = "1.2.3", .nvrtc_version = "13.0", .problem = "none"};
  EXPECT_EQ(decode<Ready>(frame_of(encode(ready))), ready);
}

TEST(WorkerFrames, AJobComesBackAsItWas) {
  const auto job = decode<Job>(frame_of(encode(some_job())));
  ASSERT_TRUE(job);
  const CompileRequest expected = some_job().request;
  EXPECT_EQ(job->capability, 90);
  EXPECT_EQ(job->request.name, expected.name);
  EXPECT_EQ(job->request.text, expected.text);
  EXPECT_EQ(job->request.headers, expected.headers);
  EXPECT_EQ(job->request.options, expected.options);
  EXPECT_TRUE(job->request.architecture_specific);
}

TEST(WorkerFrames, AReplyComesBackAsItWas) {
  const Reply reply{.outcome = Reply::Outcome::device_failed,
                    .binary = {.image = {std::byte{0}, std::byte{255}}, .log = "a warning"},
                    .text = "out of memory",
                    .source_path = "softmax.cu",
                    .call = "nvrtcCreateProgram(...)",
                    .code = 1};
  const auto back = decode<Reply>(frame_of(encode(reply)));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->outcome, reply.outcome);
  EXPECT_EQ(back->binary.image, reply.binary.image);
  EXPECT_EQ(back->binary.log, reply.binary.log);
  EXPECT_EQ(back->text, reply.text);
  EXPECT_EQ(back->source_path, reply.source_path);
  EXPECT_EQ(back->call, reply.call);
  EXPECT_EQ(back->code, reply.code);
}

TEST(WorkerFrames, AnotherKindIsRefused) {
  const Frame hello = frame_of(encode(Hello{.version = "0.1.0"}));
  EXPECT_FALSE(decode<Ready>(hello));
  EXPECT_FALSE(decode<Job>(hello));
  EXPECT_FALSE(decode<Reply>(hello));
}

TEST(WorkerFrames, EveryTruncationAndAnyExcessIsRefused) {
  const Frame whole = frame_of(encode(some_job()));
  for (std::size_t bytes = 0; bytes < whole.payload.size(); ++bytes)
    EXPECT_FALSE(decode<Job>({whole.kind, whole.payload.substr(0, bytes)})) << bytes;
  EXPECT_FALSE(decode<Job>({whole.kind, whole.payload + '\0'}));
}

TEST(WorkerFrames, AnUnknownOutcomeIsRefused) {
  Frame frame = frame_of(encode(Reply{}));
  frame.payload[0] = 5;
  EXPECT_FALSE(decode<Reply>(frame));
}

TEST(WorkerFrames, ACountBeyondTheBytesIsRefusedWithoutMemoryForIt) {
  Frame frame = frame_of(encode(Reply{}));
  for (std::size_t i = 4; i < 12; ++i) frame.payload[i] = '\xff';
  EXPECT_FALSE(decode<Reply>(frame));
}

TEST(WorkerFrames, BytesThatAreNoHeaderAreRefused) {
  const std::string header = encode(Hello{}).substr(0, frame_header_bytes);
  EXPECT_TRUE(decode_header(header));
  EXPECT_FALSE(decode_header(header.substr(1)));
  EXPECT_FALSE(decode_header(header + '\0'));
  EXPECT_FALSE(decode_header("Usage: ce-tune ["));
  const auto with = [&](std::size_t at, char value) {
    std::string changed = header;
    changed[at] = value;
    return changed;
  };
  EXPECT_FALSE(decode_header(with(0, 'x'))) << "the magic";
  EXPECT_FALSE(decode_header(with(4, 0))) << "the kind";
  EXPECT_FALSE(decode_header(with(4, 6))) << "the kind";
  EXPECT_FALSE(decode_header(with(15, 1))) << "the length";
}

TEST(WorkerFrames, DamageIsRefusedOrReadButNeverMore) {
  std::mt19937_64 random(ce::test::test_seed());
  const Frame whole = frame_of(encode(some_job()));
  for (int i = 0; i < 20'000; ++i) {
    Frame damaged = whole;
    for (unsigned changes = 1 + random() % 4; changes > 0; --changes)
      damaged.payload[random() % damaged.payload.size()] = static_cast<char>(random());
    // What is read after all has the bytes that came: encoded again it is as long, but for header names that
    // have become equal.
    if (const auto job = decode<Job>(damaged)) {
      EXPECT_LE(encode(*job).size(), frame_header_bytes + damaged.payload.size());
    }
  }
}

}  // namespace
}  // namespace ce::runtime::cuda
