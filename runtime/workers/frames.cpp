#include "runtime/workers/frames.hpp"

#include <concepts>
#include <tuple>
#include <type_traits>

namespace ce::runtime::cuda {
namespace {

constexpr std::uint32_t magic = 0x6b'77'65'63;  // "cewk"

template <class Type, class Wanted>
concept Is = std::same_as<std::remove_const_t<Type>, Wanted>;

// Lists the fields of each message, once for both directions.
auto fields(Is<Hello> auto& m) { return std::tie(m.protocol, m.version, m.nvrtc); }
auto fields(Is<Ready> auto& m) { return std::tie(m.protocol, m.version, m.nvrtc_version, m.problem); }
auto fields(Is<Job> auto& m) {
  return std::tie(m.capability, m.request.name, m.request.text, m.request.headers, m.request.options,
                  m.request.architecture_specific);
}
auto fields(Is<Reply> auto& m) {
  return std::tie(m.outcome, m.binary.image, m.binary.log, m.text, m.source_path, m.call, m.code);
}
auto fields(Is<Note> auto& m) { return std::tie(m.text); }

class Writer {
 public:
  template <std::unsigned_integral Number>
  void put(Number number) {
    for (std::size_t i = 0; i < sizeof number; ++i) bytes_ += static_cast<char>(number >> (8 * i) & 0xff);
  }
  void put(bool flag) { put(std::uint32_t{flag}); }
  void put(Reply::Outcome outcome) { put(static_cast<std::uint32_t>(outcome)); }
  void put(const std::string& text) {
    put(std::uint64_t{text.size()});
    bytes_ += text;
  }
  void put(const std::vector<std::byte>& image) {
    put(std::uint64_t{image.size()});
    bytes_.append(reinterpret_cast<const char*>(image.data()), image.size());
  }
  void put(const std::vector<std::string>& texts) {
    put(std::uint64_t{texts.size()});
    for (const std::string& text : texts) put(text);
  }
  void put(const std::map<std::string, std::string>& entries) {
    put(std::uint64_t{entries.size()});
    for (const auto& [key, value] : entries) {
      put(key);
      put(value);
    }
  }
  [[nodiscard]] std::string bytes() && { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads fields. After the first field that does not fit, every read fails.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <std::unsigned_integral Number>
  void get(Number& number) {
    number = 0;
    const std::string_view part = take(sizeof number);
    for (std::size_t i = 0; i < part.size(); ++i)
      number |= static_cast<Number>(Number{static_cast<unsigned char>(part[i])} << (8 * i));
  }
  void get(bool& flag) {
    std::uint32_t number = 0;
    get(number);
    if (number > 1) sound_ = false;
    flag = number == 1;
  }
  void get(Reply::Outcome& outcome) {
    std::uint32_t number = 0;
    get(number);
    if (number > static_cast<std::uint32_t>(Reply::Outcome::failed)) sound_ = false;
    if (sound_) outcome = static_cast<Reply::Outcome>(number);
  }
  void get(std::string& text) { text = take(count()); }
  void get(std::vector<std::byte>& image) {
    const std::string_view part = take(count());
    const auto* data = reinterpret_cast<const std::byte*>(part.data());
    image.assign(data, data + part.size());
  }
  // A count is only trusted up to the number of bytes received: no memory is reserved for it.
  void get(std::vector<std::string>& texts) {
    for (std::uint64_t left = count(); sound_ && left > 0; --left) get(texts.emplace_back());
  }
  void get(std::map<std::string, std::string>& entries) {
    for (std::uint64_t left = count(); sound_ && left > 0; --left) {
      std::string key;
      get(key);
      get(entries[key]);
    }
  }
  [[nodiscard]] bool exhausted() const noexcept { return sound_ && bytes_.empty(); }

 private:
  std::uint64_t count() {
    std::uint64_t number = 0;
    get(number);
    return number;
  }
  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size()) sound_ = false;
    if (!sound_) return {};
    const std::string_view part = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return part;
  }

  std::string_view bytes_;
  bool sound_ = true;
};

}  // namespace

std::optional<FrameHeader> decode_header(std::string_view bytes) noexcept {
  if (bytes.size() != frame_header_bytes) return std::nullopt;
  Reader reader(bytes);
  std::uint32_t mark = 0, kind = 0;
  std::uint64_t payload_bytes = 0;
  reader.get(mark);
  reader.get(kind);
  reader.get(payload_bytes);
  if (mark != magic || payload_bytes > longest_payload) return std::nullopt;
  if (kind < static_cast<std::uint32_t>(FrameKind::hello) ||
      kind > static_cast<std::uint32_t>(FrameKind::note))
    return std::nullopt;
  return FrameHeader{static_cast<FrameKind>(kind), payload_bytes};
}

template <class Message>
std::string encode(const Message& message) {
  Writer payload;
  std::apply([&](const auto&... field) { (payload.put(field), ...); }, fields(message));
  const std::string bytes = std::move(payload).bytes();
  Writer header;
  header.put(magic);
  header.put(static_cast<std::uint32_t>(Message::kind));
  header.put(std::uint64_t{bytes.size()});
  return std::move(header).bytes() + bytes;
}

template <class Message>
std::optional<Message> decode(const Frame& frame) {
  if (frame.kind != Message::kind) return std::nullopt;
  Message message;
  Reader reader(frame.payload);
  std::apply([&](auto&... field) { (reader.get(field), ...); }, fields(message));
  if (!reader.exhausted()) return std::nullopt;
  return message;
}

template std::string encode(const Hello&);
template std::string encode(const Ready&);
template std::string encode(const Job&);
template std::string encode(const Reply&);
template std::string encode(const Note&);
template std::optional<Hello> decode(const Frame&);
template std::optional<Ready> decode(const Frame&);
template std::optional<Job> decode(const Frame&);
template std::optional<Reply> decode(const Frame&);
template std::optional<Note> decode(const Frame&);

}  // namespace ce::runtime::cuda
