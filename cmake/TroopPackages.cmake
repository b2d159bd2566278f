# Debian packages: cpack -G DEB --config build/release/CPackConfig.cmake
# Dependencies are read from the program (dpkg-shlibdeps, of dpkg-dev).

set(CPACK_PACKAGE_NAME troop)
set(CPACK_PACKAGE_VENDOR Troop)
set(CPACK_PACKAGE_CONTACT "The Troop developers <troop@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime dev policy)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME troop)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS python3)  # environments in Python
if(troop_has_plots)
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS fonts-dejavu-core)  # Cairo finds fonts at run time
  # Only programs that link troop::fleet or troop::apps need it.
  set(CPACK_DEBIAN_DEV_PACKAGE_RECOMMENDS libcairo2-dev)
endif()
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libtroop-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libarchive-dev, libbz2-dev, libcereal-dev, libdnnl-dev, \
libfmt-dev, libgif-dev, libjpeg-dev, liblz4-dev, liblzma-dev, libpng-dev, libsodium-dev, \
libspdlog-dev, libtomlplusplus-dev, libzmq3-dev, libzstd-dev, nlohmann-json3-dev, zlib1g-dev")
set(CPACK_DEBIAN_POLICY_PACKAGE_NAME libtroop-policy)
set(CPACK_DEBIAN_POLICY_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_POLICY_PACKAGE_SHLIBDEPS ON)
set(CPACK_COMPONENT_POLICY_DESCRIPTION "Trained agents in other programs: libtroop_policy")
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "The program `troop`, its configs and completions")
set(CPACK_COMPONENT_DEV_DESCRIPTION "Libraries and headers of Troop, for find_package(troop)")
include(CPack)
