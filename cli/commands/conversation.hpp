#pragma once
/// \file
/// What ce-tune and the processes that it starts of itself say to each other: JSON objects over a socket.

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>

#include "ce/error.hpp"
#include "cli/json.hpp"
#include "runtime/workers/channel.hpp"
#include "tuner/tuner.hpp"

namespace ce::cli {

/// What is not UTF-8 in a text arrives as something else: paths go as path_words().
runtime::cuda::Transfer send(runtime::cuda::Channel& channel, const Json& words);

/// A path as words, whatever its bytes are.
[[nodiscard]] Json path_words(const std::filesystem::path& path);
/// The path that path_words() said.
[[nodiscard]] std::filesystem::path path_in(const Json& words);

/// The time that is left until then, null for ever; and the end of a time that is left.
[[nodiscard]] Json deadline_words(std::chrono::steady_clock::time_point end);
[[nodiscard]] std::chrono::steady_clock::time_point deadline_in(const Json& words);

[[nodiscard]] Json words_of(const tuner::Progress& progress);
[[nodiscard]] tuner::Progress progress_in(const Json& words);

/// \returns nothing, with the reason in `transfer`, where no object came
[[nodiscard]] std::optional<Json> receive(runtime::cuda::Channel& channel, runtime::cuda::Transfer& transfer,
                                          runtime::cuda::Deadline deadline = runtime::cuda::no_deadline);

/// The main function of such a process: answers one job after the other, until its parent closes `in` or ends. Where
/// `answer` throws an Error, that is the answer; see error_in().
/// \param name  the argument that makes ce-tune this process, for messages
/// \param answer  may say more over the channel before
/// \return the exit status: 0, or 1 when what arrived was no conversation, with a line on standard error
[[nodiscard]] int answer_jobs(int in, int out, const char* name,
                              const std::function<Json(const Json& job, runtime::cuda::Channel&)>& answer);

/// The error that is an answer; nothing where it is another.
[[nodiscard]] std::optional<Error> error_in(const Json& answer);

}  // namespace ce::cli
