#pragma once
/// \file
/// Messages between the library and its compile workers. A frame is a header (magic, kind, bytes of the payload) and
/// the payload: the fields of one message in order, numbers little-endian, each variable-length field preceded by its
/// size.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/device.hpp"

namespace ce::runtime::cuda {

/// Raised with each change of a message.
inline constexpr std::uint32_t worker_protocol = 2;
/// Larger than any kernel: a longer payload is invalid.
inline constexpr std::uint64_t longest_payload = std::uint64_t{1} << 28;
inline constexpr std::size_t frame_header_bytes = 16;

enum class FrameKind : std::uint32_t { hello = 1, ready, job, reply, note };

/// The library's first message.
struct Hello {
  static constexpr FrameKind kind = FrameKind::hello;
  std::uint32_t protocol = worker_protocol;
  std::string version;  ///< of `ce`
  std::string nvrtc;    ///< path of the library to open; empty: the worker chooses

  friend bool operator==(const Hello&, const Hello&) = default;
};

/// The worker's answer to Hello.
struct Ready {
  static constexpr FrameKind kind = FrameKind::ready;
  std::uint32_t protocol = worker_protocol;
  std::string version;
  std::string nvrtc_version;  ///< version of the NVRTC that it has opened
  std::string problem;        ///< why it cannot compile; empty if it can

  friend bool operator==(const Ready&, const Ready&) = default;
};

struct Job {
  static constexpr FrameKind kind = FrameKind::job;
  std::uint32_t capability = 0;
  CompileRequest request;
};

struct Reply {
  static constexpr FrameKind kind = FrameKind::reply;
  enum class Outcome : std::uint32_t {
    compiled,       ///< binary
    refused,        ///< CompileError: text is the log
    unsupported,    ///< Unsupported: text is the message
    device_failed,  ///< DeviceError: call, code, and the message in text
    failed,         ///< anything else: text is the message
  };
  Outcome outcome = Outcome::failed;
  Binary binary;
  std::string text;
  std::string source_path;
  std::string call;
  std::uint32_t code = 0;
};

/// Free text, for workers with another protocol.
struct Note {
  static constexpr FrameKind kind = FrameKind::note;
  std::string text;
};

/// A payload with the kind that its header claims.
struct Frame {
  FrameKind kind = FrameKind::hello;
  std::string payload;
};

struct FrameHeader {
  FrameKind kind;
  std::uint64_t payload_bytes;
};

/// Returns nothing for bytes that are not a header of this protocol, or announce a payload that is too long.
[[nodiscard]] std::optional<FrameHeader> decode_header(std::string_view bytes) noexcept;

/// The whole frame, header and payload, of a Hello, Ready, Job, Reply or Note.
template <class Message>
[[nodiscard]] std::string encode(const Message& message);

/// Decodes a frame; returns nothing unless the frame is of this kind and holds exactly its fields.
template <class Message>
[[nodiscard]] std::optional<Message> decode(const Frame& frame);

}  // namespace ce::runtime::cuda
