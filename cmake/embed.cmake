# cmake -DFOLDER=f -DFILES=a;b/c -DOUTPUT=c.cpp -P embed.cmake: these files of the folder as raw string literals, with
# their lengths (sv): clang counts no more than a million characters while it compiles.
set(entries "")
foreach(name IN LISTS FILES)
  file(READ ${FOLDER}/${name} text)
  string(APPEND entries "    {\"${name}\", R\"ce~~(${text})ce~~\"sv},\n")
endforeach()
file(WRITE ${OUTPUT} "#include \"templates/embedded.hpp\"

namespace ce::templates {
namespace {

using namespace std::string_view_literals;

constexpr File all[] = {
${entries}};
}  // namespace

std::span<const File> files() noexcept { return all; }

}  // namespace ce::templates
")
