# Targets install and uninstall, and the package files for find_package(troop).

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/troop)
# Three Debian packages: `troop`, everything that a machine of a fleet needs, `libtroop-dev`, and
# `libtroop-policy` (TroopPolicyLibrary). Files without a component belong to the second.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME dev)

get_property(folders GLOBAL PROPERTY TROOP_FOLDERS)
list(TRANSFORM folders PREPEND troop_ OUTPUT_VARIABLE targets)
install(TARGETS ${targets} EXPORT troopTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
foreach(folder IN LISTS folders)
  if(EXISTS ${CMAKE_SOURCE_DIR}/${folder})
    install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/troop
      FILES_MATCHING PATTERN "*.h")
  endif()
endforeach()
install(EXPORT troopTargets NAMESPACE troop:: DESTINATION ${package_dir})
# Interface of plug-ins: two headers, for C and for C++, without dependencies.
add_library(troop_plugin INTERFACE)
target_include_directories(troop_plugin INTERFACE
  $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/envs/plugin>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(troop_plugin PROPERTIES EXPORT_NAME plugin)
install(TARGETS troop_plugin EXPORT troopPluginTargets)
install(FILES envs/plugin/troop_env.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES envs/plugin/troop/environment.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/troop)
install(EXPORT troopPluginTargets NAMESPACE troop:: DESTINATION ${package_dir})
# Plug-ins can also be built against a build folder.
export(TARGETS troop_plugin NAMESPACE troop:: FILE ${CMAKE_BINARY_DIR}/troopPluginTargets.cmake)
set(troop_has_plots OFF)
if(TARGET PkgConfig::cairo)
  set(troop_has_plots ON)
endif()
configure_package_config_file(cmake/troopConfig.cmake.in ${CMAKE_BINARY_DIR}/troopConfig.cmake
  INSTALL_DESTINATION ${package_dir})
# Before 1.0 minor versions may be incompatible: SameMinorVersion (docs/reference/versions.md).
write_basic_package_version_file(${CMAKE_BINARY_DIR}/troopConfigVersion.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/troopConfig.cmake ${CMAKE_BINARY_DIR}/troopConfigVersion.cmake
  cmake/TroopDependencies.cmake DESTINATION ${package_dir})

if(TARGET troop)
  install(TARGETS troop RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
endif()
install(FILES tools/completions/troop.bash RENAME troop
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT runtime)
install(FILES tools/completions/_troop
  DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT runtime)
install(FILES tools/completions/troop.fish
  DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT runtime)
install(DIRECTORY python/troop_env DESTINATION ${CMAKE_INSTALL_DATADIR}/troop/python
  COMPONENT runtime FILES_MATCHING PATTERN "*.py" PATTERN "__pycache__" EXCLUDE)
install(FILES LICENSE THIRD_PARTY.md README.md CHANGELOG.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
file(GLOB configs CONFIGURE_DEPENDS configs/*.toml)
install(FILES ${configs} DESTINATION ${CMAKE_INSTALL_DATADIR}/troop/configs COMPONENT runtime)
include(TroopPackages)

add_custom_target(uninstall COMMENT "Removing the files of the last installation"
  COMMAND ${CMAKE_COMMAND} -D MANIFEST=${CMAKE_BINARY_DIR}/install_manifest.txt
    -P ${CMAKE_SOURCE_DIR}/cmake/uninstall.cmake)
