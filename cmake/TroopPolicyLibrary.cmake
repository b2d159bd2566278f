# libtroop_policy (nn/policy_library/troop_policy.h): a shared and a static library that depend on
# libc and libstdc++ only, and how they are installed.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

file(GLOB sources CONFIGURE_DEPENDS nn/policy_library/*.cc)
add_library(troop_policy_objects OBJECT ${sources})
target_link_libraries(troop_policy_objects PRIVATE nlohmann_json::nlohmann_json)
target_compile_features(troop_policy_objects PRIVATE cxx_std_20)
target_include_directories(troop_policy_objects PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
set_target_properties(troop_policy_objects PROPERTIES POSITION_INDEPENDENT_CODE ON
  CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
# Unlike Troop's own kernels the library promises no equal bits on all processors, so sums may use
# fused multiply-adds.
target_compile_options(troop_policy_objects PRIVATE -ffp-contract=fast)
if(NOT TROOP_SANITIZE)
  target_compile_options(troop_policy_objects PRIVATE -O3)
endif()

# The version of the interface, TROOP_POLICY_ABI, is the first number.
set(policy_version 1.0.0)
add_library(troop_policy SHARED $<TARGET_OBJECTS:troop_policy_objects>)
add_library(troop_policy_static STATIC $<TARGET_OBJECTS:troop_policy_objects>)
foreach(target troop_policy troop_policy_static)
  target_include_directories(${target} INTERFACE
    $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/nn/policy_library>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()
set(policy_map ${CMAKE_CURRENT_SOURCE_DIR}/nn/policy_library/troop_policy.map)
target_link_options(troop_policy PRIVATE -Wl,--version-script=${policy_map})
set_target_properties(troop_policy PROPERTIES LINKER_LANGUAGE CXX EXPORT_NAME policy
  LINK_DEPENDS ${policy_map} VERSION ${policy_version} SOVERSION 1)
set_target_properties(troop_policy_static PROPERTIES LINKER_LANGUAGE CXX EXPORT_NAME policy_static
  OUTPUT_NAME troop_policy)
# A project in C alone links the static library, too.
target_link_libraries(troop_policy_static INTERFACE $<INSTALL_INTERFACE:stdc++> m)

# The component `policy` is all that another program needs:
# cmake --install BUILD --component policy.
set(policy_package ${CMAKE_INSTALL_LIBDIR}/cmake/troop_policy)
install(TARGETS troop_policy troop_policy_static EXPORT troop_policyTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT policy NAMELINK_COMPONENT policy
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT policy)
install(FILES nn/policy_library/troop_policy.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  COMPONENT policy)
install(EXPORT troop_policyTargets NAMESPACE troop:: DESTINATION ${policy_package} COMPONENT policy)
configure_package_config_file(cmake/troop_policyConfig.cmake.in
  ${CMAKE_BINARY_DIR}/troop_policyConfig.cmake INSTALL_DESTINATION ${policy_package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/troop_policyConfigVersion.cmake
  VERSION ${policy_version} COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_BINARY_DIR}/troop_policyConfig.cmake
  ${CMAKE_BINARY_DIR}/troop_policyConfigVersion.cmake DESTINATION ${policy_package}
  COMPONENT policy)
# Paths in the pkg-config file are relative to it, so that a folder can be moved as a whole.
file(RELATIVE_PATH policy_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/troop_policy.pc.in ${CMAKE_BINARY_DIR}/troop_policy.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/troop_policy.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
  COMPONENT policy)
