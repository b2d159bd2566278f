# Embeds the dashboard's page in the program: apps/monitor/web/*, and Debian's Chart.js.
find_file(TROOP_CHART_JS chart.min.js REQUIRED
  PATHS /usr/share/javascript/chart.js /usr/share/nodejs/chart.js/dist NO_DEFAULT_PATH
  DOC "Chart.js 3 (Debian: libjs-chart.js)")
mark_as_advanced(TROOP_CHART_JS)
set(types html "text/html; charset=utf-8" css "text/css; charset=utf-8"
  js "text/javascript; charset=utf-8" svg "image/svg+xml")
set(files "")
function(troop_dashboard_file path file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} text)
  cmake_path(GET file EXTENSION LAST_ONLY extension)
  string(SUBSTRING ${extension} 1 -1 extension)
  list(FIND types ${extension} at)
  math(EXPR at "${at} + 1")
  list(GET types ${at} type)
  # Some compilers limit literals to 64 KiB; adjacent literals are concatenated.
  string(LENGTH "${text}" left)
  set(parts "")
  set(from 0)
  while(from LESS left)
    string(SUBSTRING "${text}" ${from} 16000 part)
    string(APPEND parts "R\"~~~(${part})~~~\"\n")
    math(EXPR from "${from} + 16000")
  endwhile()
  string(APPEND files "    {\"${path}\", \"${type}\", ${parts}},\n")
  set(files "${files}" PARENT_SCOPE)
endfunction()
file(GLOB page CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/apps/monitor/web/*)
foreach(file IN LISTS page)
  cmake_path(GET file FILENAME name)
  troop_dashboard_file("/${name}" ${file})
endforeach()
troop_dashboard_file("/chart.js" ${TROOP_CHART_JS})
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/dashboard_files.cc @ONLY CONTENT
"#include \"apps/monitor/dashboard_api.h\"

namespace troop {
namespace {
constexpr DashboardFile kFiles[] = {
@files@};
}  // namespace
std::span<const DashboardFile> DashboardFiles() { return kFiles; }
}  // namespace troop
")
target_sources(troop_apps PRIVATE ${CMAKE_BINARY_DIR}/dashboard_files.cc)
