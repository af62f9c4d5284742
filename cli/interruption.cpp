#include "cli/interruption.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <system_error>
#include <utility>

#include "cli/exit_codes.hpp"

namespace ce::cli {
namespace {

constexpr std::array<int, 2> signals{SIGINT, SIGTERM};
constexpr char stop_byte = 's';
constexpr char end_byte = 'e';

// State for the handler: lock-free, and async-signal-safe to read and write.
std::atomic<int> write_end{-1};
std::atomic<int> received{0};
static_assert(std::atomic<int>::is_always_lock_free);

struct sigaction previous[signals.size()];

// A failed write means a full pipe, which already contains the message.
void write_byte(int descriptor, char byte) {
  while (::write(descriptor, &byte, 1) < 0 && errno == EINTR) {
  }
}

extern "C" void ce_tune_handle_signal(int) {
  const int saved = errno;
  if (received.fetch_add(1) > 0) ::_exit(static_cast<int>(ExitCode::interrupted));
  write_byte(write_end.load(), stop_byte);
  errno = saved;
}

void check(int result, const char* call) {
  if (result != 0) throw std::system_error(errno, std::generic_category(), call);
}

}  // namespace

Interruption::Interruption(std::function<void()> on_request) : on_request_(std::move(on_request)) {
  check(::pipe2(pipe_.data(), O_CLOEXEC), "pipe2");
  write_end = pipe_[1];
  received = 0;
  watcher_ = std::thread([this] { watch(); });
  struct sigaction action {};
  action.sa_handler = ce_tune_handle_signal;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < signals.size(); ++i) ::sigaction(signals[i], &action, &previous[i]);
}

Interruption::~Interruption() {
  for (std::size_t i = 0; i < signals.size(); ++i) ::sigaction(signals[i], &previous[i], nullptr);
  write_byte(pipe_[1], end_byte);
  watcher_.join();
  write_end = -1;
  for (const int descriptor : pipe_) ::close(descriptor);
}

void Interruption::watch() {
  for (;;) {
    char byte = end_byte;
    const ssize_t count = ::read(pipe_[0], &byte, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0 || byte == end_byte) return;
    source_.request_stop();
    on_request_();
  }
}

}  // namespace ce::cli
