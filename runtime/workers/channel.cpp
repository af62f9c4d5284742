#include "runtime/workers/channel.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <string>
#include <system_error>

#include "ce/error.hpp"

namespace ce::runtime::cuda {
namespace {

using std::chrono::milliseconds;

[[noreturn]] void fail(std::string_view call) {
  throw Error(ErrorKind::compile, fmt::format("communication with a compiler process failed: {}: {}", call,
                                              std::generic_category().message(errno)));
}

/// Waits until the descriptor is readable or writable, or has ended; returns false if the deadline comes first.
bool wait(int descriptor, short events, Deadline deadline) {
  for (;;) {
    int timeout = -1;
    if (deadline != no_deadline) {
      const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now()).count();
      if (left <= 0) return false;
      timeout = static_cast<int>(std::min<std::int64_t>(left, 60'000));
    }
    pollfd event{descriptor, events, 0};
    const int ready = ::poll(&event, 1, timeout);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) fail("poll");
  }
}

bool would_block() noexcept { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }
bool peer_gone() noexcept { return errno == EPIPE || errno == ECONNRESET; }

}  // namespace

Descriptor::~Descriptor() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Transfer Channel::send(std::string_view frame, Deadline deadline) {
  while (!frame.empty()) {
    if (!wait(out_, POLLOUT, deadline)) return Transfer::late;
    ssize_t sent = ::send(out_, frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == ENOTSOCK) sent = ::write(out_, frame.data(), frame.size());
    if (sent < 0) {
      if (would_block()) continue;
      if (peer_gone()) return Transfer::closed;
      fail("send");
    }
    frame.remove_prefix(static_cast<std::size_t>(sent));
  }
  return Transfer::done;
}

Transfer Channel::fill(std::string& bytes, std::size_t count, Deadline deadline) {
  std::array<char, 1 << 16> part;
  while (bytes.size() < count) {
    if (!wait(in_.get(), POLLIN, deadline)) return Transfer::late;
    const ssize_t got = ::read(in_.get(), part.data(), std::min(part.size(), count - bytes.size()));
    if (got == 0) return Transfer::closed;
    if (got < 0) {
      if (would_block()) continue;
      if (peer_gone()) return Transfer::closed;
      fail("read");
    }
    bytes.append(part.data(), static_cast<std::size_t>(got));
  }
  return Transfer::done;
}

Transfer Channel::receive(Frame& frame, Deadline deadline) {
  std::string bytes;
  if (const Transfer transfer = fill(bytes, frame_header_bytes, deadline); transfer != Transfer::done)
    return transfer;
  const std::optional<FrameHeader> header = decode_header(bytes);
  if (!header) return Transfer::malformed;
  frame.kind = header->kind;
  frame.payload.clear();
  return fill(frame.payload, header->payload_bytes, deadline);
}

bool Channel::quiet() const noexcept {
  pollfd event{in_.get(), POLLIN, 0};
  return ::poll(&event, 1, 0) == 0;
}

void Channel::shut_down() noexcept { ::shutdown(in_.get(), SHUT_RDWR); }

}  // namespace ce::runtime::cuda
