# Embeds the examples in the program: `troop env new` writes them under another name.
set(templates "")
foreach(language c cpp python)
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/examples/${language}_environment/*.*)
  foreach(file IN LISTS files)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(READ ${file} text)
    cmake_path(GET file FILENAME name)
    string(APPEND templates "    {\"${language}\", \"${name}\", R\"~~~(${text})~~~\"},\n")
  endforeach()
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/env_templates.cc @ONLY CONTENT
"#include \"apps/envtools/env_template.h\"

namespace troop {
namespace {
constexpr EnvTemplate kTemplates[] = {
@templates@};
}  // namespace
std::span<const EnvTemplate> EnvTemplates() { return kTemplates; }
}  // namespace troop
")
target_sources(troop_apps PRIVATE ${CMAKE_BINARY_DIR}/env_templates.cc)
