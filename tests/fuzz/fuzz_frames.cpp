// What library and compile workers say to each other. An input is a frame; where its header is none, it is a payload of
// every kind of message.
#include "runtime/workers/frames.hpp"
#include "tests/fuzz/harness.hpp"

namespace {

using namespace ce;
using namespace ce::runtime::cuda;

template <class Message>
void read_as(const std::string& payload) {
  const auto message = decode<Message>({.kind = Message::kind, .payload = payload});
  if (!message) return;
  const std::string bytes = encode(*message);
  const auto header = decode_header(std::string_view(bytes).substr(0, frame_header_bytes));
  fuzz::require(
      header && header->kind == Message::kind && header->payload_bytes == bytes.size() - frame_header_bytes,
      "the header says what follows");
  const auto again = decode<Message>({.kind = Message::kind, .payload = bytes.substr(frame_header_bytes)});
  fuzz::require(again && encode(*again) == bytes, "a message is read as it was written");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::as_text(data, size);
  const auto header = decode_header(bytes.substr(0, frame_header_bytes));
  const std::string payload(bytes.substr(header ? frame_header_bytes : 0));
  const auto is = [&](FrameKind kind) { return !header || header->kind == kind; };
  if (is(FrameKind::hello)) read_as<Hello>(payload);
  if (is(FrameKind::ready)) read_as<Ready>(payload);
  if (is(FrameKind::job)) read_as<Job>(payload);
  if (is(FrameKind::reply)) read_as<Reply>(payload);
  if (is(FrameKind::note)) read_as<Note>(payload);
  return 0;
}
