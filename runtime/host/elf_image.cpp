#include "runtime/host/elf_image.hpp"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstdint>
#include <cstring>

namespace ce::runtime::host {
namespace {

constexpr unsigned char own_class = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;

using Header = ElfW(Ehdr);
using Segment = ElfW(Phdr);

/// Whether a table or a segment lies within the file.
bool fits(std::size_t file_bytes, std::uint64_t offset, std::uint64_t bytes) {
  return offset <= file_bytes && bytes <= file_bytes - offset;
}

template <class Record>
Record record_at(std::span<const std::byte> image, std::size_t offset) {
  Record record;
  std::memcpy(&record, image.data() + offset, sizeof record);
  return record;
}

}  // namespace

std::string incompleteness(std::span<const std::byte> image) {
  if (image.size() < sizeof(Header)) return fmt::format("its {} bytes are not a shared object", image.size());
  const auto header = record_at<Header>(image, 0);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != own_class ||
      header.e_type != ET_DYN || header.e_phentsize != sizeof(Segment) || header.e_phnum == 0)
    return "it is not a shared object for this machine";
  std::string cut = fmt::format("the file ends early, after {} bytes", image.size());
  // Linkers put the section table at the end, so any truncated file lacks some of it.
  if (!fits(image.size(), header.e_shoff, std::uint64_t{header.e_shnum} * header.e_shentsize) ||
      !fits(image.size(), header.e_phoff, std::uint64_t{header.e_phnum} * sizeof(Segment)))
    return cut;
  for (std::size_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = record_at<Segment>(image, header.e_phoff + i * sizeof(Segment));
    if (!fits(image.size(), segment.p_offset, segment.p_filesz)) return cut;
  }
  return {};
}

}  // namespace ce::runtime::host
