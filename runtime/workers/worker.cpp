#include "runtime/workers/worker.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "base/built_version.hpp"
#include "ce/error.hpp"
#include "runtime/cuda/nvrtc.hpp"
#include "runtime/workers/channel.hpp"
#include "runtime/workers/process.hpp"

namespace ce::runtime {
namespace cuda {
namespace {

/// The error's text without the call and code that its constructor puts before it.
std::string text_of(const DeviceError& error) {
  const std::string before = DeviceError(error.call(), error.code(), "").what();
  return std::string(error.what()).substr(before.size());
}

Reply compile(const Nvrtc& nvrtc, const Job& job) {
  Reply reply;
  try {
    reply.binary = nvrtc.compile(job.request, static_cast<int>(job.capability));
    reply.outcome = Reply::Outcome::compiled;
  } catch (const CompileError& error) {
    reply.outcome = Reply::Outcome::refused;
    reply.text = error.log();
    reply.source_path = error.source_path();
  } catch (const Unsupported& error) {
    reply.outcome = Reply::Outcome::unsupported;
    reply.text = error.what();
  } catch (const DeviceError& error) {
    reply.outcome = Reply::Outcome::device_failed;
    reply.text = text_of(error);
    reply.call = error.call();
    reply.code = static_cast<std::uint32_t>(error.code());
  } catch (const std::exception& error) {
    reply.text = error.what();
  }
  return reply;
}

/// Answers the greeting. If there is no NVRTC, the answer says so.
Nvrtc::Opened open_for(const Hello& hello, Ready& ready) {
  if (!hello.nvrtc.empty()) ::setenv("CE_NVRTC", hello.nvrtc.c_str(), 1);
  Nvrtc::Opened opened = Nvrtc::open();
  if (opened.nvrtc == nullptr)
    ready.problem = no_nvrtc(opened.tried);
  else
    ready.nvrtc_version = opened.nvrtc->version();
  return opened;
}

int serve(Channel& channel) {
  Frame frame;
  const auto nonsense = [] {
    fmt::print(
        stderr,
        "ce-tune {}: only the library uses this command, and this input does not come from the library\n",
        compile_worker_argument);
    return 1;
  };
  const Transfer greeted = channel.receive(frame);
  if (greeted == Transfer::closed) return 0;
  if (greeted != Transfer::done || frame.kind != FrameKind::hello) return nonsense();

  // A greeting of another protocol cannot be decoded, but its sender can decode who answers.
  Ready ready{.version = std::string(built_version())};
  const auto hello = decode<Hello>(frame);
  Nvrtc::Opened opened;
  if (hello) opened = open_for(*hello, ready);
  if (channel.send(encode(ready)) != Transfer::done || opened.nvrtc == nullptr) return 0;

  for (;;) {
    const Transfer transfer = channel.receive(frame);
    if (transfer == Transfer::closed) return 0;
    const auto job = transfer == Transfer::done ? decode<Job>(frame) : std::nullopt;
    if (!job) return nonsense();
    if (channel.send(encode(compile(*opened.nvrtc, *job))) != Transfer::done) return 0;
  }
}

}  // namespace
}  // namespace cuda

int compile_worker_main(int in, int out) {
  try {
    cuda::ParentProcess parent(in, out);
    return cuda::serve(parent.channel());
  } catch (const std::exception& error) {
    fmt::print(stderr, "ce-tune {}: {}\n", compile_worker_argument, error.what());
    return 1;
  }
}

}  // namespace ce::runtime
