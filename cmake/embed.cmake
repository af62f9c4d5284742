# cmake -DFILES=a;b -DOUTPUT=c.cpp -P embed.cmake: the files as raw string literals.
set(entries "")
foreach(path IN LISTS FILES)
  get_filename_component(name ${path} NAME)
  file(READ ${path} text)
  string(APPEND entries "    {\"${name}\", R\"ce~~(${text})ce~~\"},\n")
endforeach()
file(WRITE ${OUTPUT} "#include \"templates/embedded.hpp\"

namespace ce::templates {
namespace {
constexpr File all[] = {
${entries}};
}  // namespace

std::span<const File> files() noexcept { return all; }

}  // namespace ce::templates
")
