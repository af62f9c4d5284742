#include "cli/commands/conversation.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/bounded_json.hpp"
#include "cli/say.hpp"
#include "runtime/workers/process.hpp"

namespace ce::cli {

using runtime::cuda::Channel;
using runtime::cuda::Deadline;
using runtime::cuda::Frame;
using runtime::cuda::Note;
using runtime::cuda::Transfer;

Transfer send(Channel& channel, const Json& words) {
  return channel.send(encode(Note{words.dump(-1, ' ', false, Json::error_handler_t::replace)}));
}

Json path_words(const std::filesystem::path& path) {
  const std::string& bytes = path.native();
  return std::vector<std::uint8_t>(bytes.begin(), bytes.end());
}

std::filesystem::path path_in(const Json& words) {
  const auto bytes = words.get<std::vector<std::uint8_t>>();
  return std::string(bytes.begin(), bytes.end());
}

Json deadline_words(std::chrono::steady_clock::time_point end) {
  if (end == std::chrono::steady_clock::time_point::max()) return {};
  return std::chrono::duration<double>(end - std::chrono::steady_clock::now()).count();
}

std::chrono::steady_clock::time_point deadline_in(const Json& words) {
  using Clock = std::chrono::steady_clock;
  if (words.is_null()) return Clock::time_point::max();
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(words.get<double>()));
}

Json words_of(const tuner::Progress& progress) {
  return {{"stage", progress.stage},    {"done", progress.done},       {"total", progress.total},
          {"best", progress.best},      {"best_us", progress.best_us}, {"best_gbs", progress.best_gbs},
          {"seconds", progress.seconds}};
}

tuner::Progress progress_in(const Json& words) {
  return {.stage = words.at("stage"),
          .done = words.at("done"),
          .total = words.at("total"),
          .best = words.at("best"),
          .best_us = words.at("best_us"),
          .best_gbs = words.at("best_gbs"),
          .seconds = words.at("seconds")};
}

std::optional<Json> receive(Channel& channel, Transfer& transfer, Deadline deadline) {
  Frame frame;
  transfer = channel.receive(frame, deadline);
  if (transfer != Transfer::done) return std::nullopt;
  const auto note = runtime::cuda::decode<Note>(frame);
  try {
    Json words = note ? parse_json<Json>(note->text) : Json();
    if (words.is_object()) return words;
  } catch (const std::exception&) {  // treated like text that is not an object
  }
  transfer = Transfer::malformed;
  return std::nullopt;
}

int answer_jobs(int in, int out, const char* name, const std::function<Json(const Json&, Channel&)>& answer) {
  try {
    runtime::cuda::ParentProcess parent(in, out);
    Channel& channel = parent.channel();
    for (;;) {
      Transfer transfer = Transfer::done;
      const auto job = receive(channel, transfer);
      if (transfer == Transfer::closed) return 0;
      if (!job) {
        say("ce-tune {}: only ce-tune uses this command, and this input does not come from ce-tune\n", name);
        return 1;
      }
      Json words;
      try {
        words = answer(*job, channel);
      } catch (const Error& error) {
        words = {{"error", {{"kind", static_cast<int>(error.kind())}, {"message", error.what()}}}};
      }
      if (send(channel, words) != Transfer::done) return 0;
    }
  } catch (const std::exception& error) {
    say("ce-tune {}: {}\n", name, error.what());
    return 1;
  }
}

std::optional<Error> error_in(const Json& answer) {
  if (!answer.contains("error")) return std::nullopt;
  const Json& error = answer.at("error");
  return Error(static_cast<ErrorKind>(error.at("kind").get<int>()), error.at("message").get<std::string>());
}

}  // namespace ce::cli
