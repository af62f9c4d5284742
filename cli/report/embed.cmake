# cmake -DFOLDER=f -DOUTPUT=c.cpp -P embed.cmake: page.css and page.js of the folder as raw string literals, and the
# SHA-256 of the script in base64, by which the page's content security policy allows it.
file(READ ${FOLDER}/page.css style)
file(READ ${FOLDER}/page.js script)
string(SHA256 hex "${script}")
set(digits ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)
set(base64 "")
foreach(at RANGE 0 60 3)  # three digits of 4 bits are two of 6
  string(SUBSTRING ${hex} ${at} 3 three)
  math(EXPR high "0x${three} / 64")
  math(EXPR low "0x${three} % 64")
  string(SUBSTRING ${digits} ${high} 1 first)
  string(SUBSTRING ${digits} ${low} 1 second)
  string(APPEND base64 ${first}${second})
endforeach()
string(SUBSTRING ${hex} 63 1 last)
math(EXPR last "0x${last} * 4")
string(SUBSTRING ${digits} ${last} 1 last)
file(WRITE ${OUTPUT} "#include \"cli/report/style.hpp\"

namespace ce::cli {

const std::string_view report_style = R\"ce~~(${style})ce~~\";

const std::string_view report_script = R\"ce~~(${script})ce~~\";

const std::string_view report_script_digest = \"${base64}${last}=\";

}  // namespace ce::cli
")
