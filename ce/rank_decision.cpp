#include "ce/rank_decision.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <span>
#include <sstream>
#include <type_traits>

#include "base/log.hpp"
#include "ce/error.hpp"
#include "ce/rank_exchange.hpp"

namespace ce {
namespace {

struct Message {
  std::int32_t failed = 0;        ///< 0, or 1 and the kind of the error
  std::int32_t exchange = 0;      ///< whether the ranks exchange
  std::array<char, 2040> text{};  ///< keys and configs, one a line; or the error's message
};
static_assert(std::is_trivially_copyable_v<Message>);

void put(std::string_view text, Message& message) {
  std::ranges::copy(text.substr(0, message.text.size() - 1), message.text.begin());
}

Message message_of(const RankDecision& decision) {
  Message message{.failed = 0, .exchange = decision.exchange ? 1 : 0};
  std::string text;
  for (const auto& [key, config] : decision.configs)
    if (const std::string line = fmt::format("{} {}\n", key, config);
        text.size() + line.size() < message.text.size())
      text += line;
  put(text, message);
  return message;
}

RankDecision decision_of(const Message& message) {
  RankDecision decision{.exchange = message.exchange != 0};
  std::istringstream text(message.text.data());
  for (std::string key, config; text >> key >> config;) decision.configs.emplace_back(key, config);
  return decision;
}

}  // namespace

RankDecision decided_by_rank_0(runtime::Device& device, const Communicator& communicator,
                               const std::function<RankDecision()>& decide, Stream stream) {
  Message message;
  std::exception_ptr failure;
  if (communicator.rank == 0) try {
      message = message_of(decide());
    } catch (const Error& error) {
      failure = std::current_exception();
      message.failed = 1 + static_cast<std::int32_t>(error.kind());
      put(error.what(), message);
    }
  const std::vector<std::byte> all =
      gather_from_ranks(device, communicator, std::as_bytes(std::span(&message, 1)), stream);
  if (failure) std::rethrow_exception(failure);
  std::memcpy(&message, all.data(), sizeof message);
  if (message.failed != 0)
    throw Error(static_cast<ErrorKind>(message.failed - 1), fmt::format("rank 0: {}", message.text.data()));
  return decision_of(message);
}

double time_all_gather(runtime::Device& device, const Communicator& communicator, const void* send,
                       void* receive, std::size_t bytes, Stream stream) {
  using Clock = std::chrono::steady_clock;
  constexpr int timed = 4;
  gather(communicator, send, receive, bytes, stream);
  wait_for_ranks(device, communicator, stream);
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < timed; ++i) gather(communicator, send, receive, bytes, stream);
  wait_for_ranks(device, communicator, stream);
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / timed;
}

bool exchange_is_faster(const RankTimes& times, std::int64_t rows, double width) {
  const auto& [shard, merge, backward, exchange, all_gather] = times;
  if (std::min({shard, merge, backward, exchange}) <= 0) return true;
  const auto n = static_cast<double>(rows);
  const double one = n * width * exchange, three = n * (width * (shard + backward) + merge) + all_gather;
  log(LogLevel::info, fmt::format("CrossEntropy of {} rows among ranks: {:.1f} us by exchange, {:.1f} us by "
                                  "gather",
                                  rows, one, three));
  return one <= three;
}

}  // namespace ce
