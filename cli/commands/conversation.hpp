#pragma once
/// \file
/// The protocol between ce-tune and the ce-tune processes that it starts: JSON objects over a socket.

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>

#include "ce/error.hpp"
#include "cli/json.hpp"
#include "runtime/workers/channel.hpp"
#include "tuner/tuner.hpp"

namespace ce::cli {

/// Invalid UTF-8 in a text arrives changed: paths must be sent as path_words().
runtime::cuda::Transfer send(runtime::cuda::Channel& channel, const Json& words);

/// A path in a form that preserves its bytes.
[[nodiscard]] Json path_words(const std::filesystem::path& path);
/// The inverse of path_words().
[[nodiscard]] std::filesystem::path path_in(const Json& words);

/// The time left until a deadline, null for no deadline; and the inverse.
[[nodiscard]] Json deadline_words(std::chrono::steady_clock::time_point end);
[[nodiscard]] std::chrono::steady_clock::time_point deadline_in(const Json& words);

[[nodiscard]] Json words_of(const tuner::Progress& progress);
[[nodiscard]] tuner::Progress progress_in(const Json& words);

/// \returns nothing, with the reason in `transfer`, if no object arrived
[[nodiscard]] std::optional<Json> receive(runtime::cuda::Channel& channel, runtime::cuda::Transfer& transfer,
                                          runtime::cuda::Deadline deadline = runtime::cuda::no_deadline);

/// The main function of such a process: answers one job after the other, until its parent closes `in` or ends. If
/// `answer` throws an Error, that is the answer; see error_in().
/// \param name  the argument that selects this process, for messages
/// \param answer  may send more over the channel first
/// \return the exit status: 0, or 1 with a line on standard error if the received data is invalid
[[nodiscard]] int answer_jobs(int in, int out, const char* name,
                              const std::function<Json(const Json& job, runtime::cuda::Channel&)>& answer);

/// The error in an answer; nothing if the answer is not an error.
[[nodiscard]] std::optional<Error> error_in(const Json& answer);

}  // namespace ce::cli
